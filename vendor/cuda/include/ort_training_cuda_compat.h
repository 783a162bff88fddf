// Included before every CUDA source. ONNX Runtime 1.21 is written for CUDA 11 and 12; this gives back the names that CUDA
// 13 and its CCCL 3 took away, under their old names and with their old meaning.
#pragma once

#if defined(__CUDACC_VER_MAJOR__) && __CUDACC_VER_MAJOR__ >= 13

#include <cuda/functional>
#include <cuda/std/functional>
#include <cuda/std/limits>

namespace cub {

using Sum = ::cuda::std::plus<>;
using Max = ::cuda::maximum<>;
using Min = ::cuda::minimum<>;

template <typename T>
struct FpLimits {
  static __host__ __device__ __forceinline__ T Max() { return ::cuda::std::numeric_limits<T>::max(); }
  static __host__ __device__ __forceinline__ T Lowest() { return ::cuda::std::numeric_limits<T>::lowest(); }
};

}  // namespace cub

namespace thrust {

template <typename T = void>
struct identity {
  __host__ __device__ __forceinline__ const T& operator()(const T& value) const { return value; }
};

}  // namespace thrust

// CUDA 13's cudaTypedefs.h has the versioned names only; CUTLASS 3.5 uses the plain ones.
#define PFN_cuTensorMapEncodeTiled PFN_cuTensorMapEncodeTiled_v12000
#define PFN_cuTensorMapEncodeIm2col PFN_cuTensorMapEncodeIm2col_v12000

#endif
