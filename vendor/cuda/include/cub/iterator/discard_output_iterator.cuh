// CCCL 3 has no such header: there, thrust's iterator serves. Older ones have their own.
#pragma once

#if __CUDACC_VER_MAJOR__ >= 13

#include <thrust/iterator/discard_iterator.h>

namespace cub {

template <typename Offset = ptrdiff_t>
using DiscardOutputIterator = ::thrust::discard_iterator<>;

}  // namespace cub

#else
#include_next <cub/iterator/discard_output_iterator.cuh>
#endif
