# Runs after all of ONNX Runtime's CMake files: changes to its targets, and targets of our own.

# ONNX Runtime uses FlatBuffers' headers and the few functions of util.cpp; the parser and the code generators of
# FlatBuffers' library would be 40 CPU-seconds for objects that nothing links.
if(TARGET flatbuffers)
  get_target_property(_flatbuffers_dir flatbuffers SOURCE_DIR)
  set_property(TARGET flatbuffers PROPERTY SOURCES "${_flatbuffers_dir}/src/util.cpp")
endif()

# Some assembly of MLAS does not say that it needs no executable stack, and the linker takes that for a need: loading the
# library would make every stack of the process executable, or fail where that is forbidden (glibc 2.41's dlopen).
if(TARGET onnxruntime AND UNIX AND NOT APPLE)
  target_link_options(onnxruntime PRIVATE "LINKER:-z,noexecstack")
endif()

if(ORT_TRAINING_ARTIFACTS AND EXISTS "${CMAKE_CURRENT_LIST_DIR}/../shim/shim.cmake")
  include("${CMAKE_CURRENT_LIST_DIR}/../shim/shim.cmake")
endif()

if(ORT_TRAINING_UNITY)
  include("${CMAKE_CURRENT_LIST_DIR}/unity.cmake")
endif()
