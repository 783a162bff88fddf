# Adds the artifact maker to the shared library `onnxruntime`, without a change to ONNX Runtime's sources.
# To be included after all of ONNX Runtime's targets exist.

set(_shim_dir "${CMAKE_CURRENT_LIST_DIR}")

add_library(ort_training_artifacts OBJECT
  "${_shim_dir}/ort_training_artifacts.cc"
  "${_shim_dir}/pretraining_transformers.cc"
  "${_shim_dir}/gradient_check.cc"
)

# A training-APIs build compiles ONNX Runtime's training kernels but not its gradient builder: these sources are in no
# other object of the build. A full training build (onnxruntime_ENABLE_TRAINING) has them already.
if(NOT onnxruntime_ENABLE_TRAINING)
  target_sources(ort_training_artifacts PRIVATE
    "${ORTTRAINING_SOURCE_DIR}/core/framework/gradient_graph_builder.cc"
    "${ORTTRAINING_SOURCE_DIR}/core/graph/gradient_builder.cc"
    "${ORTTRAINING_SOURCE_DIR}/core/graph/gradient_builder_base.cc"
    "${ORTTRAINING_SOURCE_DIR}/core/graph/gradient_builder_registry.cc"
    "${ORTTRAINING_SOURCE_DIR}/core/graph/graph_augmenter.cc"
    "${ORTTRAINING_SOURCE_DIR}/core/optimizer/batchnorm_replacement.cc"
    "${ORTTRAINING_SOURCE_DIR}/core/optimizer/cast_sce_loss_fusion.cc"
    "${ORTTRAINING_SOURCE_DIR}/core/optimizer/concat_replacement.cc"
    "${ORTTRAINING_SOURCE_DIR}/core/optimizer/gru_replacement.cc"
    "${ORTTRAINING_SOURCE_DIR}/core/optimizer/insert_output_rewriter.cc"
    "${ORTTRAINING_SOURCE_DIR}/core/optimizer/loss_rewriter.cc"
    "${ORTTRAINING_SOURCE_DIR}/core/optimizer/lstm_replacement.cc"
    "${ORTTRAINING_SOURCE_DIR}/core/optimizer/qdq_fusion.cc"
    "${ORTTRAINING_SOURCE_DIR}/core/optimizer/shape_optimizer.cc"
  )
endif()

# In batches, the shim's files take a third of the time: two batches, the gradient builder and the rest.
if(ORT_TRAINING_UNITY)
  set(_shim_skip "")
  if(EXISTS "${ORT_TRAINING_UNITY_SKIP_FILE}")
    file(STRINGS "${ORT_TRAINING_UNITY_SKIP_FILE}" _shim_skip)
  endif()
  get_target_property(_shim_sources ort_training_artifacts SOURCES)
  foreach(source IN LISTS _shim_sources)
    if(source IN_LIST _shim_skip)
      set_property(SOURCE "${source}" TARGET_DIRECTORY ort_training_artifacts PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
    elseif(source MATCHES "/grad[a-z_]*builder[a-z_]*\\.cc$|/graph_augmenter\\.cc$")
      set_property(SOURCE "${source}" TARGET_DIRECTORY ort_training_artifacts PROPERTY UNITY_GROUP gradients)
    else()
      set_property(SOURCE "${source}" TARGET_DIRECTORY ort_training_artifacts PROPERTY UNITY_GROUP transformers)
    endif()
  endforeach()
  set_target_properties(ort_training_artifacts PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
endif()

if(COMMAND onnxruntime_configure_target)
  onnxruntime_configure_target(ort_training_artifacts)
endif()
set_target_properties(ort_training_artifacts PROPERTIES POSITION_INDEPENDENT_CODE ON FOLDER "ONNXRuntime")
onnxruntime_add_include_to_target(ort_training_artifacts
  onnxruntime_common onnxruntime_framework onnxruntime_graph onnx onnx_proto ${PROTOBUF_LIB}
  flatbuffers::flatbuffers Boost::mp11 safeint_interface Eigen3::Eigen nlohmann_json::nlohmann_json)
target_include_directories(ort_training_artifacts PRIVATE
  "${_shim_dir}" "${CMAKE_CURRENT_BINARY_DIR}" "${ONNXRUNTIME_ROOT}" "${ORTTRAINING_ROOT}")
add_dependencies(ort_training_artifacts ${onnxruntime_EXTERNAL_DEPENDENCIES})

target_sources(onnxruntime PRIVATE $<TARGET_OBJECTS:ort_training_artifacts>)
if(UNIX AND NOT APPLE)
  # ONNX Runtime's own version script hides everything else; a second one with a node of its own adds our one symbol.
  target_link_options(onnxruntime PRIVATE "LINKER:--version-script=${_shim_dir}/ort_training_artifacts.lds")
  set_property(TARGET onnxruntime APPEND PROPERTY LINK_DEPENDS "${_shim_dir}/ort_training_artifacts.lds")
endif()
install(FILES "${_shim_dir}/ort_training_artifacts.h" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/onnxruntime")
