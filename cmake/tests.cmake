# One test program per folder: src/kv/**/*_test.cc -> ebb_kv_tests, tests/soak/*.cc ->
# ebb_tests_soak. A test of src/kv links ebb_kv and what that links, and sees the headers that src/kv sees.
# Files named *_verify_test.cc are too long for `make test`: those of a folder make a program of their own,
# labelled `verify`.
find_package(GTest REQUIRED)
include(GoogleTest)

ebb_precompile(ebb_tests_pch HEADERS <gtest/gtest.h> <gmock/gmock.h> LIBRARIES GTest::gmock
  OPTIONS ${EBB_QUICKLY_COMPILED})

# Helpers of tests: those of tests/support need the lowest layers alone; those of a folder in it need a layer.
ebb_glob(sources "_test\\.cc$|/support/.*/" tests/support/*.cc)
add_library(ebb_test_support STATIC EXCLUDE_FROM_ALL ${sources})
ebb_show_folder(ebb_test_support tests/support)
target_compile_definitions(ebb_test_support PUBLIC
  EBB_BINARY_PATH="${EBB_BINARY}" EBB_BINARY_FOLDER="${CMAKE_BINARY_DIR}/bin" EBB_SOURCE_DIR="${EBB_ROOT}")
target_link_libraries(ebb_test_support
  PUBLIC ebb_options ebb_base fmt::fmt GTest::gmock GTest::gtest PRIVATE ggml)
function(ebb_add_test_support name)
  ebb_glob(sources "_test\\.cc$" tests/support/${name}/*.cc)
  add_library(ebb_${name}_test_support STATIC EXCLUDE_FROM_ALL ${sources})
  target_compile_options(ebb_${name}_test_support PRIVATE ${EBB_QUICKLY_COMPILED})
  target_link_libraries(ebb_${name}_test_support PUBLIC ebb_test_support ${ARGN})
endfunction()
target_compile_options(ebb_test_support PRIVATE ${EBB_QUICKLY_COMPILED})
ebb_add_test_support(kv ebb_kv)
ebb_add_test_support(policy ebb_policy)
# The laboratory's source of attention to come, which the policy `oracle` is tested with.
target_sources(ebb_policy_test_support PRIVATE ${EBB_ROOT}/lab/eval/replayed_attention.cc)
target_include_directories(ebb_policy_test_support PUBLIC ${EBB_ROOT}/lab/include)
ebb_add_test_support(engine ebb_internal)
# Servers that models are fetched from.
ebb_add_test_support(hub PkgConfig::libsodium nlohmann_json::nlohmann_json Threads::Threads)

# What tests of a layer link besides it.
set(support_of_io ebb_test_queue)
set(support_of_device ebb_test_device)
set(support_of_rows ebb_test_device ebb_test_queue ebb_kv_test_support)
set(support_of_kv ebb_test_device ebb_test_queue ebb_kv_test_support)
set(support_of_step ebb_test_device)
set(support_of_policy ebb_policy_kernels ebb_policy_test_support nlohmann_json::nlohmann_json)
set(support_of_attention ebb_attention_kernels)
set(support_of_server ebb_lab)
# Writes models with random weights, for corpora and by hand.
add_executable(ebb_random_gguf ${EBB_ROOT}/tests/tools/random_gguf.cc)
target_link_libraries(ebb_random_gguf PRIVATE ebb_engine_test_support)
# The fixture of llama.cpp's tests: tiny models of every architecture.
set_source_files_properties(${EBB_ROOT}/tests/support/engine/library_models.cc
  ${EBB_ROOT}/tests/support/engine/mtp_reference.cc
  ${EBB_ROOT}/tests/support/engine/eagle3_reference.cc
  ${EBB_ROOT}/tests/support/engine/assistant_reference.cc
  ${EBB_ROOT}/tests/support/engine/dflash_reference.cc PROPERTIES
  COMPILE_OPTIONS "-isystem;${EBB_LLAMA_CPP_SOURCE}/tests;-isystem;${EBB_LLAMA_CPP_SOURCE}/src;-w")
add_executable(ebb_library_models ${EBB_ROOT}/tests/tools/library_models.cc)
target_link_libraries(ebb_library_models PRIVATE ebb_engine_test_support)
# Draws texts from the grammars of JSON schemas, for tests/schemas.
add_executable(ebb_schema_samples ${EBB_ROOT}/tests/tools/schema_samples.cc)
target_link_libraries(ebb_schema_samples PRIVATE ebb_engine_test_support)
# What T2 is held against (docs/figures/performance.md).
add_executable(ebb_llama_cache_fidelity EXCLUDE_FROM_ALL
  ${EBB_ROOT}/tests/tools/llama_cache_fidelity.cc ${EBB_ROOT}/tests/tools/study_text.cc)
target_link_libraries(ebb_llama_cache_fidelity PRIVATE ebb_lab ebb_engine_test_support)
# The study behind T2's formats (docs/figures/t2-study.md).
add_executable(ebb_t2_study EXCLUDE_FROM_ALL
  ${EBB_ROOT}/tests/tools/t2_study.cc ${EBB_ROOT}/tests/tools/t2_formats.cc
  ${EBB_ROOT}/tests/tools/study_text.cc)
target_link_libraries(ebb_t2_study PRIVATE ebb_lab ebb_engine_test_support)

# ebb_add_tests(ebb_kv_tests PREFIX kv LABEL unit LIBRARIES ... SOURCES ...)
# Libraries are given in the linker's order: kernels before the layer.
function(ebb_add_tests name)
  cmake_parse_arguments(arg "" "PREFIX;LABEL" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT arg_SOURCES)
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_compile_options(${name} PRIVATE ${EBB_QUICKLY_COMPILED})
  target_precompile_headers(${name} REUSE_FROM ebb_tests_pch)
  target_link_options(${name} PRIVATE ${EBB_TEST_LINK_OPTIONS})
  target_link_libraries(${name} PRIVATE ${arg_LIBRARIES} ebb_test_support GTest::gmock_main)
  # Tests of the programs start them.
  if(arg_PREFIX MATCHES "^(cli|server|backends)$" AND name MATCHES "^ebb_tests_")
    add_dependencies(${name} ebb_cli ebb_lab_cli ebb_bench_cli)
  endif()
  set(timeout 300)
  if(arg_LABEL STREQUAL "verify")
    set(timeout 7200)
  endif()
  # Programs of many short tests, whose start takes longer than most of these, run in a few processes.
  set(shards_of_engine 16)
  set(shards_of_policy 8)
  set(shards ${shards_of_${arg_PREFIX}})
  if(NOT shards OR NOT arg_LABEL STREQUAL "unit")
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
      TEST_PREFIX "${arg_PREFIX}." PROPERTIES LABELS ${arg_LABEL} TIMEOUT ${timeout})
    return()
  endif()
  foreach(shard RANGE 1 ${shards})
    math(EXPR index "${shard} - 1")
    add_test(NAME ${arg_PREFIX}.${shard}of${shards} COMMAND ${name} --gtest_brief)
    set_tests_properties(${arg_PREFIX}.${shard}of${shards} PROPERTIES
      LABELS ${arg_LABEL} TIMEOUT 1200 FAIL_REGULAR_EXPRESSION "PASSED  . 0 tests"
      ENVIRONMENT "GTEST_TOTAL_SHARDS=${shards};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()

function(ebb_add_test_folder name prefix folder)
  ebb_glob(all "^$" ${folder}/*.cc)
  if(folder MATCHES "^(src|lab|apps)(/|$)")
    list(FILTER all INCLUDE REGEX "_test\\.cc$")
  endif()
  set(verify ${all})
  list(FILTER verify INCLUDE REGEX "_verify_test\\.cc$")
  list(FILTER all EXCLUDE REGEX "_verify_test\\.cc$")
  set(tests ${all})
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  if(tests)
    ebb_add_tests(${name} PREFIX ${prefix} LABEL unit SOURCES ${all} LIBRARIES ${ARGN})
    # It replaces operator new.
    ebb_compile_by_folder(${name} tests/engine/allocation_failure_test.cc)
  endif()
  if(verify)
    # What tests of the folder share.
    set(shared ${all})
    list(FILTER shared EXCLUDE REGEX "_test\\.cc$")
    ebb_add_tests(${name}_verify PREFIX ${prefix} LABEL verify SOURCES ${verify} ${shared} LIBRARIES ${ARGN})
  endif()
endfunction()

file(GLOB folders CONFIGURE_DEPENDS LIST_DIRECTORIES true RELATIVE ${EBB_ROOT}
  ${EBB_ROOT}/src/* ${EBB_ROOT}/lab/* ${EBB_ROOT}/tests/*)
get_property(has_team GLOBAL PROPERTY EBB_GGML_HAS_TEAM)
foreach(folder IN LISTS folders)
  cmake_path(GET folder FILENAME name)
  if(NOT IS_DIRECTORY ${EBB_ROOT}/${folder} OR folder STREQUAL tests/support)
    continue()
  elseif(folder MATCHES "^src/" AND NOT TARGET ebb_${name})
    message(FATAL_ERROR "${folder} is no layer: give it a line of ebb_add_layer in cmake/targets.cmake")
  elseif(folder STREQUAL tests/ggml AND NOT has_team)
    continue()
  elseif(folder STREQUAL tests/backends AND NOT "rpc" IN_LIST EBB_BACKENDS)
    continue()
  elseif(folder MATCHES "^src/")
    # It sees what its layer sees.
    get_target_property(seen ebb_${name} LINK_LIBRARIES)
    ebb_add_test_folder(ebb_${name}_tests ${name} ${folder} ${support_of_${name}} ebb_${name} ${seen})
  elseif(folder MATCHES "^lab/")
    ebb_add_test_folder(ebb_${name}_tests ${name} ${folder} ebb_lab PkgConfig::xxhash)
  elseif(folder STREQUAL tests/store)
    ebb_add_test_folder(ebb_tests_${name} ${name} ${folder} ebb_store ebb_internal)
  elseif(folder MATCHES "^tests/(cli|server)$")
    # They start processes as the program does.
    ebb_add_test_folder(ebb_tests_${name} ${name} ${folder}
      ebb_cli_parts ebb_lab ebb_test_device ebb_engine_test_support ebb_hub_test_support)
  elseif(folder STREQUAL tests/model)
    ebb_add_test_folder(ebb_tests_${name} ${name} ${folder} ebb_engine_test_support ebb_lab)
  else()
    ebb_add_test_folder(ebb_tests_${name} ${name} ${folder} ebb_test_device ebb_engine_test_support)
  endif()
endforeach()
ebb_add_test_folder(ebb_cli_tests cli apps
  ebb_cli_parts ebb_lab_cli_parts ebb_bench_cli_parts ebb_hub_test_support)

if("rpc" IN_LIST EBB_BACKENDS)
  # A device that is another process; tests/backends kills it.
  add_executable(ebb_rpc_server ${EBB_ROOT}/tests/tools/rpc_server.cc)
  target_link_libraries(ebb_rpc_server PRIVATE ggml)
  target_sources(ebb_tests_backends PRIVATE ${EBB_ROOT}/tests/engine/engine_fixture.cc)
  target_compile_definitions(ebb_tests_backends PRIVATE
    EBB_RPC_SERVER="$<TARGET_FILE:ebb_rpc_server>")
  add_dependencies(ebb_tests_backends ebb_rpc_server)
endif()

# The tests of whole steps, but over a device. Tests that cannot run there skip themselves and say what they need
# (EBB_CPU_ONLY in tests/engine/engine_fixture.h).
add_test(NAME engine.OverADevice COMMAND ebb_tests_engine --gtest_brief)
set_tests_properties(engine.OverADevice PROPERTIES LABELS verify TIMEOUT 1800
  FAIL_REGULAR_EXPRESSION "PASSED  . 0 tests" ENVIRONMENT EBB_TEST_ENGINE_DEVICE=ggml-sim)

set(lavapipe ${EBB_DEPS_DIR}/lavapipe)
if(TARGET ggml-vulkan AND EXISTS ${lavapipe}/lvp_icd.json)
  # Tests of the simulated device over a real backend, on Mesa's Vulkan driver for the processor, which
  # scripts/fetch_lavapipe finds. One that computes much is left out. What each kind of operation needs is compiled when it is first met.
  set(over "*/BackendDeviceTest.*/flash:*BackendDeviceT1Test.*/host:*/BackendT2Test.*/flash")
  string(APPEND over ":*/BackendDeviceTest.IsTheProcessor*/eager:*/BackendDeviceComputeTest.*/eager")
  string(APPEND over ":*/BackendSelectiveTest.AgreesWith*/flash")
  set(library_graphs "*/LibraryDevice.IsTheProcessor*/phi3_flash:*/LibraryDevice.IsTheProcessor*/gpt_oss_flash")
  string(APPEND library_graphs ":*/LibraryDevice.ACompressed*/phi3_flash:*/LibraryDevice.ACompressed*/gpt_oss_flash")
  file(GLOB libraries ${lavapipe}/usr/lib/*-linux-gnu)
  set(environment EBB_TEST_DEVICE=vulkan0 GGML_VK_VISIBLE_DEVICES=0
    VK_DRIVER_FILES=${lavapipe}/lvp_icd.json "LD_LIBRARY_PATH=${libraries}:$ENV{LD_LIBRARY_PATH}")
  add_test(NAME backends.Vulkan COMMAND ebb_tests_engine --gtest_filter=${over}:-*MemoryFallsWithTheRows*)
  add_test(NAME backends.VulkanLibraryGraphs COMMAND ebb_tests_engine --gtest_filter=${library_graphs})
  set_tests_properties(backends.Vulkan backends.VulkanLibraryGraphs PROPERTIES LABELS verify TIMEOUT 1800
    FAIL_REGULAR_EXPRESSION "PASSED  . 0 tests" ENVIRONMENT "${environment}")
endif()

# A source of a layer does not find headers of a layer that its target does not link.
file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/generated/bad_include.cc CONTENT "#include \"src/kv/tables/token_table.h\"\n")
add_test(NAME layers.APolicySeesNoCache COMMAND ${CMAKE_CXX_COMPILER} -fsyntax-only
  "-I$<JOIN:$<TARGET_PROPERTY:ebb_policy,INCLUDE_DIRECTORIES>,;-I>" ${CMAKE_BINARY_DIR}/generated/bad_include.cc
  COMMAND_EXPAND_LISTS)
set_tests_properties(layers.APolicySeesNoCache PROPERTIES
  PASS_REGULAR_EXPRESSION "src/kv/tables/token_table.h: No such file or directory")
add_test(NAME layers.IncludesPointOneWay COMMAND ${EBB_ROOT}/scripts/check_layers ${EBB_ROOT})
add_test(NAME layers.BadIncludesAreFound COMMAND ${EBB_ROOT}/scripts/check_layers_test)
add_test(NAME scripts.Demo COMMAND ${EBB_ROOT}/scripts/demo)
set_tests_properties(scripts.Demo PROPERTIES ENVIRONMENT EBB=$<TARGET_FILE:ebb_cli>)
add_test(NAME scripts.CountWords COMMAND ${EBB_ROOT}/scripts/count_words_test)
add_test(NAME scripts.MutantsHavePlaces COMMAND ${EBB_ROOT}/scripts/mutants --check)
add_test(NAME docs.LinksLead COMMAND ${EBB_ROOT}/scripts/check_docs ${EBB_ROOT})
add_test(NAME scripts.CheckDocs COMMAND ${EBB_ROOT}/scripts/check_docs_test)
add_test(NAME scripts.CheckThreads COMMAND ${EBB_ROOT}/scripts/check_threads_test)
set_tests_properties(scripts.CheckThreads PROPERTIES SKIP_RETURN_CODE 77)
add_test(NAME lab.PapersProjections COMMAND ${EBB_ROOT}/lab/papers/projections_test)
add_test(NAME schemas.Corpus
         COMMAND ${EBB_ROOT}/tests/schemas/check_corpus $<TARGET_FILE:ebb_schema_samples>)
set_tests_properties(schemas.Corpus PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300)
add_test(NAME scripts.CompareWithPeers
         COMMAND ${EBB_ROOT}/scripts/compare_test $<TARGET_FILE:ebb_cli> $<TARGET_FILE:ebb_random_gguf>)
