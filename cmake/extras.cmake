# Examples, benchmarks and fuzzers: one program per file. The examples are run as tests too.
function(ebb_add_programs folder pattern prefix)
  ebb_glob(sources "^$" ${folder}/${pattern})
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM stem)
    add_executable(${prefix}_${stem} ${source})
    target_link_libraries(${prefix}_${stem} PRIVATE ${ARGN})
  endforeach()
endfunction()

if(EBB_BUILD_EXAMPLES)
  ebb_add_programs(examples *.cc example ebb ebb_options)
endif()
if(EBB_BUILD_EXAMPLES AND EBB_BUILD_TESTS)
  set(arguments ${EBB_ROOT}/training/pebble/pebble.gguf
    "Question: First Ada gets three. Second last Ben gets Ada plus four. What does Ben have?<think>")
  add_test(NAME examples.Generate COMMAND example_generate ${arguments})
  add_test(NAME examples.Policy COMMAND example_policy ${arguments})
  add_test(NAME examples.Chat COMMAND example_chat ${EBB_ROOT}/training/pebble/pebble.gguf
    "First Ada gets three. Second last Ben gets Ada plus four. What does Ben have?"
    "First Ada gets five. Second last Ben gets Ada plus two. What does Ben have?")
  set_tests_properties(examples.Generate PROPERTIES PASS_REGULAR_EXPRESSION "tokens, [0-9.]+ a second")
  set_tests_properties(examples.Policy PROPERTIES
    PASS_REGULAR_EXPRESSION "[1-9][0-9]* were evicted")
  set_tests_properties(examples.Chat PROPERTIES PASS_REGULAR_EXPRESSION "read, [1-9][0-9]* kept")
  set_tests_properties(examples.Generate examples.Policy examples.Chat PROPERTIES
    LABELS unit TIMEOUT 300)
endif()

if(EBB_BUILD_BENCHMARKS)
  find_package(benchmark REQUIRED)
  ebb_add_programs(bench *.cc bench ebb_attention_kernels ebb_policy_kernels ebb ebb_internal benchmark::benchmark_main)
endif()

if(EBB_BUILD_FUZZERS)
  ebb_add_programs(fuzz *_fuzz.cc fuzz ebb_server ebb_lab ebb ebb_internal)
  ebb_glob(sources "^$" fuzz/*_fuzz.cc)
  foreach(source IN LISTS sources)
    cmake_path(GET source STEM stem)
    target_compile_definitions(fuzz_${stem} PRIVATE EBB_FUZZ_CORPUS="${EBB_ROOT}/fuzz/corpus")
    if("fuzzer" IN_LIST EBB_SANITIZERS)
      target_link_options(fuzz_${stem} PRIVATE -fsanitize=fuzzer)
    else()
      target_sources(fuzz_${stem} PRIVATE ${EBB_ROOT}/fuzz/replay_main.cc)
      string(REGEX REPLACE "_fuzz$" "" name ${stem})
      if(EBB_BUILD_TESTS)
        add_test(NAME fuzz.Replay_${name}
          COMMAND fuzz_${stem} ${EBB_ROOT}/fuzz/corpus/${name})
        set_tests_properties(fuzz.Replay_${name} PROPERTIES LABELS unit TIMEOUT 300)
      endif()
    endif()
  endforeach()
endif()
