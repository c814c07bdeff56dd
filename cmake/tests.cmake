# One test program per folder: src/kv/**/*_test.cc -> ebb_kv_tests, tests/soak/*.cc ->
# ebb_tests_soak. Files named *_verify_test.cc are too long for `make test`: they make programs of
# their own, labelled `verify`.
find_package(GTest REQUIRED)
include(GoogleTest)

# tests/support/ is linked to every test program.
ebb_glob(sources "_test\\.cc$" tests/support/*.cc)
add_library(ebb_test_support STATIC EXCLUDE_FROM_ALL ${sources} ${EBB_EMPTY_SOURCE})
target_compile_definitions(ebb_test_support PUBLIC
  EBB_BINARY_PATH="${EBB_BINARY}" EBB_SOURCE_DIR="${EBB_ROOT}")
target_link_libraries(ebb_test_support PUBLIC ebb ebb_internal GTest::gmock GTest::gtest)
# Writes models with random weights, for corpora and by hand.
add_executable(ebb_random_gguf ${EBB_ROOT}/tests/tools/random_gguf.cc)
target_link_libraries(ebb_random_gguf PRIVATE ebb_test_support)
# The fixture of llama.cpp's tests: tiny models of every architecture.
set_source_files_properties(${EBB_ROOT}/tests/support/library_models.cc PROPERTIES
  COMPILE_OPTIONS "-isystem;${EBB_LLAMA_CPP_SOURCE}/tests;-isystem;${EBB_LLAMA_CPP_SOURCE}/src;-w")
add_executable(ebb_library_models ${EBB_ROOT}/tests/tools/library_models.cc)
target_link_libraries(ebb_library_models PRIVATE ebb_test_support)
# Draws texts from the grammars of JSON schemas, for tests/schemas.
add_executable(ebb_schema_samples ${EBB_ROOT}/tests/tools/schema_samples.cc)
target_link_libraries(ebb_schema_samples PRIVATE ebb_test_support)
# What T2 is held against (docs/figures/performance.md).
add_executable(ebb_llama_cache_fidelity EXCLUDE_FROM_ALL
  ${EBB_ROOT}/tests/tools/llama_cache_fidelity.cc ${EBB_ROOT}/tests/tools/study_text.cc)
target_link_libraries(ebb_llama_cache_fidelity PRIVATE ebb_test_support)
# The study behind T2's formats (docs/figures/t2-study.md).
add_executable(ebb_t2_study EXCLUDE_FROM_ALL
  ${EBB_ROOT}/tests/tools/t2_study.cc ${EBB_ROOT}/tests/tools/t2_formats.cc
  ${EBB_ROOT}/tests/tools/study_text.cc)
target_link_libraries(ebb_t2_study PRIVATE ebb_test_support)

# ebb_add_tests(ebb_kv_tests PREFIX kv LABEL unit LIBRARIES ... SOURCES ...)
function(ebb_add_tests name)
  cmake_parse_arguments(arg "" "PREFIX;LABEL" "SOURCES;LIBRARIES" ${ARGN})
  if(NOT arg_SOURCES)
    return()
  endif()
  add_executable(${name} ${arg_SOURCES})
  target_compile_options(${name} PRIVATE ${EBB_QUICKLY_COMPILED})
  target_link_libraries(${name} PRIVATE ebb_test_support ${arg_LIBRARIES} GTest::gmock_main)
  if(TARGET ebb_cli)
    add_dependencies(${name} ebb_cli)
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
  if(folder MATCHES "^(src|lab|apps)/")
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
  # What tests of the folder share.
  set(shared ${all})
  list(FILTER shared EXCLUDE REGEX "_test\\.cc$")
  foreach(source IN LISTS verify)
    cmake_path(GET source STEM stem)
    string(REGEX REPLACE "_verify_test$" "" stem ${stem})
    ebb_add_tests(${name}_verify_${stem} PREFIX ${prefix} LABEL verify SOURCES ${source} ${shared}
      LIBRARIES ${ARGN})
  endforeach()
endfunction()

file(GLOB folders CONFIGURE_DEPENDS LIST_DIRECTORIES true RELATIVE ${EBB_ROOT}
  ${EBB_ROOT}/src/* ${EBB_ROOT}/lab/* ${EBB_ROOT}/tests/*)
get_property(has_team GLOBAL PROPERTY EBB_GGML_HAS_TEAM)
foreach(folder IN LISTS folders)
  cmake_path(GET folder FILENAME name)
  if(NOT IS_DIRECTORY ${EBB_ROOT}/${folder} OR folder STREQUAL tests/support)
    continue()
  elseif(folder STREQUAL tests/ggml AND NOT has_team)
    continue()
  elseif(folder STREQUAL tests/backends AND NOT "rpc" IN_LIST EBB_BACKENDS)
    continue()
  elseif(folder STREQUAL src/server)
    ebb_add_test_folder(ebb_server_tests server ${folder} ebb_server)
  elseif(folder MATCHES "^(src|lab)/")
    ebb_add_test_folder(ebb_${name}_tests ${name} ${folder} ebb_lab)
  else()
    ebb_add_test_folder(ebb_tests_${name} ${name} ${folder} ebb_cli_parts)
  endif()
endforeach()
ebb_add_test_folder(ebb_cli_tests cli apps/ebb ebb_cli_parts)

if("rpc" IN_LIST EBB_BACKENDS)
  # A device that is another process; tests/backends kills it.
  add_executable(ebb_rpc_server ${EBB_ROOT}/tests/tools/rpc_server.cc)
  target_link_libraries(ebb_rpc_server PRIVATE ggml)
  target_sources(ebb_tests_backends PRIVATE ${EBB_ROOT}/tests/engine/engine_fixture.cc)
  target_compile_definitions(ebb_tests_backends PRIVATE
    EBB_RPC_SERVER="$<TARGET_FILE:ebb_rpc_server>")
  add_dependencies(ebb_tests_backends ebb_rpc_server)
endif()

# The tests of whole steps, but over a device. Left out are those that want several tokens of a step to have
# the bits of one, which no device gives; those that have suites of their own over devices (lossless, DMS,
# T2); and those of the processor's own graphs and memory.
set(left_out "*Backend*:*Lossless*:*/lossless*:*Guess*:*Verify*:*Dms*:*SessionKill*")
string(APPEND left_out ":MemoryLimit*:*Allocation*:*ComputeBuffers*:StepReportTest.CostsAddUp*")
string(APPEND left_out ":*ExactPrefix*:PrefixTest.KeepsWhat*:PrefixTest.APromptThatWas*")
string(APPEND left_out ":Batch.AMixedStep*:Batch.TiersMoveRowsInAMixedStep*:*BatchOfPolicies*")
string(APPEND left_out ":Batch.ABatchThatChangesItsSize*:Windows.NoBitDependsOnTheChunks*")
string(APPEND left_out ":Windows.APromptInPieces*")
add_test(NAME engine.OverADevice COMMAND ebb_tests_engine --gtest_brief --gtest_filter=-${left_out})
set_tests_properties(engine.OverADevice PROPERTIES LABELS verify TIMEOUT 1800
  FAIL_REGULAR_EXPRESSION "PASSED  . 0 tests" ENVIRONMENT EBB_TEST_ENGINE_DEVICE=ggml-sim)

set(lavapipe ${EBB_DEPS_DIR}/lavapipe)
if(TARGET ggml-vulkan AND EXISTS ${lavapipe}/lvp_icd.json)
  # Tests of the simulated device over a real backend, on Mesa's Vulkan driver for the processor, which
  # scripts/fetch_lavapipe finds. Left out are those that compute much, and those in which a test says
  # what fails. What each kind of operation needs is compiled when it is first met.
  set(over "*/BackendDeviceTest.*/flash:*BackendDeviceT1Test.*/host:*/BackendT2Test.*/flash")
  string(APPEND over ":*/BackendDeviceTest.IsTheProcessor*/eager:*/BackendDeviceComputeTest.*/eager")
  set(left_out "*MemoryFallsWithTheRows*:*IsLostWith*:*MemoryThatIsNotThere*")
  file(GLOB libraries ${lavapipe}/usr/lib/*-linux-gnu)
  set(environment EBB_TEST_DEVICE=vulkan0 GGML_VK_VISIBLE_DEVICES=0
    VK_DRIVER_FILES=${lavapipe}/lvp_icd.json "LD_LIBRARY_PATH=${libraries}:$ENV{LD_LIBRARY_PATH}")
  add_test(NAME backends.Vulkan COMMAND ebb_tests_engine --gtest_filter=${over}:-${left_out})
  set_tests_properties(backends.Vulkan PROPERTIES LABELS verify TIMEOUT 1800
    FAIL_REGULAR_EXPRESSION "PASSED  . 0 tests" ENVIRONMENT "${environment}")
endif()

add_test(NAME layers.IncludesPointOneWay COMMAND ${EBB_ROOT}/scripts/check_layers ${EBB_ROOT})
add_test(NAME layers.BadIncludesAreFound COMMAND ${EBB_ROOT}/scripts/check_layers_test)
add_test(NAME lab.PapersProjections COMMAND ${EBB_ROOT}/lab/papers/projections_test)
add_test(NAME schemas.Corpus
         COMMAND ${EBB_ROOT}/tests/schemas/check_corpus $<TARGET_FILE:ebb_schema_samples>)
set_tests_properties(schemas.Corpus PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 300)
add_test(NAME scripts.CompareWithPeers
         COMMAND ${EBB_ROOT}/scripts/compare_test $<TARGET_FILE:ebb_cli> $<TARGET_FILE:ebb_random_gguf>)
add_test(NAME cluster.ShardsTogetherAreTheWhole
         COMMAND ${EBB_ROOT}/examples/cluster/test_cluster $<TARGET_FILE:ebb_cli>)
set_tests_properties(cluster.ShardsTogetherAreTheWhole PROPERTIES SKIP_RETURN_CODE 77)
