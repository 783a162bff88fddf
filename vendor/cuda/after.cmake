# Changes to the CUDA execution provider's target, after all of ONNX Runtime's CMake files.

# What CUDA 13 took away, given back; nothing of it is seen by CUDA 12.
set(_cuda_include "${CMAKE_CURRENT_LIST_DIR}/include")
target_include_directories(onnxruntime_providers_cuda BEFORE PRIVATE "${_cuda_include}")
target_compile_options(onnxruntime_providers_cuda PRIVATE
  "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-include ${_cuda_include}/ort_training_cuda_compat.h>"
  # CUDA 13 deprecates vector types (longlong4) that ONNX Runtime uses: no reason to stop.
  "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-Xcompiler -Wno-deprecated-declarations>"
  "$<$<COMPILE_LANGUAGE:CUDA>:SHELL:-diag-suppress 1444>")
set_target_properties(onnxruntime_providers_cuda PROPERTIES COMPILE_WARNING_AS_ERROR OFF)

# CUDA's libraries are found where the loader finds them, or beside the provider; where NVIDIA's packages for Python put
# them, when the provider lies in such a tree. No path of the machine that built it.
set_target_properties(onnxruntime_providers_cuda PROPERTIES BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")

if(ORT_TRAINING_UNITY)
  unity_target(onnxruntime_providers_cuda BATCH 8
    # they register kernels, or define what the linker is to find once
    ALONE "/cuda_execution_provider\\.cc$" "/cuda_contrib_kernels\\.cc$" "/cuda_training_kernels\\.cc$"
          "/cuda_provider_factory\\.cc$" "/provider_bridge_provider\\.cc$")
endif()
