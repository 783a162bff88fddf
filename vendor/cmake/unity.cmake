# Unity builds of ONNX Runtime's own targets and of the larger dependencies: several source files a compiler run.
# Most of the compile time of these targets goes into the same headers (protobuf, Eigen, ONNX, the kernels' templates)
# read again for each file; read once for a batch they cost a third.
#
# Files that cannot share a batch are listed here: a file is `alone` when it collides with whatever it meets (a kernel
# template that is specialised after another file used it, macros left defined), and it goes into a series `apart`
# when it collides with a sibling only (old.cc and defs.cc of ONNX define the same doc strings).
#
# The batches are fixed by the order of the target's source list. A file that the build finds to collide
# (ORT_TRAINING_UNITY_SKIP_FILE, one absolute path a line) leaves its batch without moving any other file,
# so nothing that was compiled is compiled again.

set(_skip "")
if(EXISTS "${ORT_TRAINING_UNITY_SKIP_FILE}")
  file(STRINGS "${ORT_TRAINING_UNITY_SKIP_FILE}" _skip)
endif()

# unity_target(<target> BATCH <files> [ALONE <regex>...] [APART <regex>...])
function(unity_target target)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "BATCH" "ALONE;APART")
  if(NOT TARGET ${target})
    return()
  endif()
  get_target_property(sources ${target} SOURCES)
  get_target_property(dir ${target} SOURCE_DIR)
  set(count_main 0)
  set(total 0)
  set(alone 0)
  foreach(source IN LISTS sources)
    if(NOT source MATCHES "\\.(cc|cpp|cxx)$")
      continue()
    endif()
    math(EXPR total "${total} + 1")
    cmake_path(ABSOLUTE_PATH source BASE_DIRECTORY "${dir}" NORMALIZE OUTPUT_VARIABLE path)

    set(series main)
    foreach(regex IN LISTS arg_APART)
      if(path MATCHES "${regex}")
        string(MAKE_C_IDENTIFIER "${regex}" series)
      endif()
    endforeach()
    if(NOT DEFINED count_${series})
      set(count_${series} 0)
    endif()
    set(is_alone OFF)
    foreach(regex IN LISTS arg_ALONE)
      if(path MATCHES "${regex}")
        set(is_alone ON)
      endif()
    endforeach()
    if(NOT is_alone)
      math(EXPR group "${count_${series}} / ${arg_BATCH}")
      math(EXPR count_${series} "${count_${series}} + 1")
    endif()
    if(is_alone OR path IN_LIST _skip)
      math(EXPR alone "${alone} + 1")
      set_property(SOURCE "${path}" TARGET_DIRECTORY ${target} PROPERTY SKIP_UNITY_BUILD_INCLUSION ON)
    else()
      set_property(SOURCE "${path}" TARGET_DIRECTORY ${target} PROPERTY UNITY_GROUP "${series}_${group}")
    endif()
  endforeach()
  # Sources may define the same local macro (REGISTER_KERNEL_TYPED) each in its way: in a batch that is a warning,
  # and the later definition holds, as meant; ONNX Runtime would turn it into an error.
  set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP COMPILE_WARNING_AS_ERROR OFF)
  message(STATUS "Unity build of ${target}: ${total} files, ${alone} alone, batches of ${arg_BATCH}")
endfunction()

unity_target(onnxruntime_common BATCH 10)
unity_target(onnxruntime_util BATCH 8)
unity_target(onnxruntime_framework BATCH 8)
unity_target(onnxruntime_session BATCH 8)
unity_target(onnxruntime_graph BATCH 8
  ALONE "/internal_nhwc_onnx_schemas\\.cc$")          # instantiates schemas that its siblings specialise
unity_target(onnxruntime_optimizer BATCH 8
  APART "/gelu_approximation\\.cc$" "/gelu_fusion\\.cc$") # define helpers of the same names, as fast_gelu_fusion.cc does
unity_target(onnxruntime_providers BATCH 8
  ALONE "/cpu_execution_provider\\.cc$" "/cpu_contrib_kernels\\.cc$" "/cpu_training_kernels\\.cc$" # register kernels
  APART "/quantize_linear_matmul\\.cc$" "/matmul_integer\\.cc$" # share a header without include guard
        "/greedy_search_parameters\\.cc$")                         # a constant of the same name in its siblings
unity_target(onnx BATCH 8
  ALONE "/defs/schema\\.cc$" "/tensor_proto_util\\.cc$" # instantiate what others specialise
  APART "/old\\.cc$" "/defs/sequence/")
unity_target(libprotobuf-lite BATCH 8
  # these leave protobuf's port macros defined
  ALONE "/arenaz_sampler\\.cc$" "/generated_message_tctable_[a-z]+\\.cc$" "/inlined_string_field\\.cc$")
unity_target(re2 BATCH 8
  ALONE "/nfa\\.cc$" "/onepass\\.cc$" "/prefilter_tree\\.cc$") # each defines ExtraDebug

# ONNX's schema definitions are run once, when the library is loaded, and are a third cheaper to compile like this.
if(TARGET onnx)
  target_compile_options(onnx PRIVATE -O1)
endif()
