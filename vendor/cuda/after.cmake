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
  # Three of its files include cuda_provider_factory.h, which has no include guard.
  foreach(_file lora_adapters.cc provider_bridge_ort.cc)
    set_property(SOURCE "${ONNXRUNTIME_ROOT}/core/session/${_file}" TARGET_DIRECTORY onnxruntime_session
      PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
  endforeach()
  # They leave their batches without moving other files.
  list(APPEND _skip
    "${ONNXRUNTIME_ROOT}/contrib_ops/cuda/bert/decoder_masked_self_attention.cc" # a sibling defines the same constants
    "${ONNXRUNTIME_ROOT}/contrib_ops/cuda/fused_conv.cc"                         # slice.h has no include guard
    "${ONNXRUNTIME_ROOT}/contrib_ops/cuda/quantization/qordered_ops/qordered_qdq.cc") # prints spans its own way
  unity_target(onnxruntime_providers_cuda BATCH 8
    # they register kernels, or define what the linker is to find once
    ALONE "/cuda_execution_provider\\.cc$" "/cuda_contrib_kernels\\.cc$" "/cuda_training_kernels\\.cc$"
          "/cuda_provider_factory\\.cc$" "/provider_bridge_provider\\.cc$")
endif()
