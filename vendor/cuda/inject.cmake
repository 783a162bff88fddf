# Takes the place of ../cmake/inject.cmake in CUDA builds: what every build gets, and then what only these do. Deferred
# calls run in the order in which they were deferred, so unity_target() is there by then.
include("${ORT_TRAINING_CMAKE_DIR}/inject.cmake")
cmake_language(EVAL CODE
  "cmake_language(DEFER DIRECTORY [[${CMAKE_SOURCE_DIR}]] CALL include [[${CMAKE_CURRENT_LIST_DIR}/after.cmake]])")
