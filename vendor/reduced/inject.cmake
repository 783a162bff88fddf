# Takes the place of ../cmake/inject.cmake in builds with the operators of some models only. Deferred calls run in the order
# in which they were deferred: the files that are left out are gone when the others are put into batches.
cmake_language(EVAL CODE
  "cmake_language(DEFER DIRECTORY [[${CMAKE_SOURCE_DIR}]] CALL include [[${CMAKE_CURRENT_LIST_DIR}/after.cmake]])")
include("${ORT_TRAINING_CMAKE_DIR}/inject.cmake")
