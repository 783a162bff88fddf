// CCCL 3 has no such header: there, thrust's iterator serves. Older ones have their own.
#pragma once

#if __CUDACC_VER_MAJOR__ >= 13

#include <thrust/iterator/counting_iterator.h>

namespace cub {

template <typename Value, typename Offset = ptrdiff_t>
using CountingInputIterator = ::thrust::counting_iterator<Value>;

}  // namespace cub

#else
#include_next <cub/iterator/counting_input_iterator.cuh>
#endif
