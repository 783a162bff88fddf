# Read by CMake right after ONNX Runtime's project() call (CMAKE_PROJECT_onnxruntime_INCLUDE). What we add to the
# build must see ONNX Runtime's targets, which do not exist yet: so it runs when CMake has finished that folder.
# ONNX Runtime's own files stay as they are.
cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL include "${CMAKE_CURRENT_LIST_DIR}/after.cmake")
