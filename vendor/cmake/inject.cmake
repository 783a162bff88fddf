# Read by CMake right after ONNX Runtime's project() call (CMAKE_PROJECT_onnxruntime_INCLUDE). What we add to the
# build must see ONNX Runtime's targets, which do not exist yet: so it runs when CMake has finished that folder.
# ONNX Runtime's own files stay as they are.
#
# A deferred call expands its arguments when it runs, and this file's folder is unknown by then: hence EVAL.
cmake_language(EVAL CODE
  "cmake_language(DEFER DIRECTORY [[${CMAKE_SOURCE_DIR}]] CALL include [[${CMAKE_CURRENT_LIST_DIR}/after.cmake]])")
