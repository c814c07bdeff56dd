# Finds llama.cpp and builds ggml, ggml-cpu, llama and the part of its common library that chat
# templates need. The version is pinned: ebb's tests compare bits with it.
set(EBB_LLAMA_CPP_DIR "" CACHE PATH "A llama.cpp source folder; empty: fetch the pinned one")
set(EBB_DEPS_DIR ${CMAKE_CURRENT_SOURCE_DIR}/build/deps CACHE PATH "Where fetched sources lie")
option(EBB_NATIVE "Compile ggml for this machine's processor" ON)
option(EBB_OPENMP "Let ggml use OpenMP" ON)

if(NOT EBB_LLAMA_CPP_DIR)
  file(MAKE_DIRECTORY ${EBB_DEPS_DIR})
  file(LOCK ${EBB_DEPS_DIR}/.lock GUARD PROCESS)
  execute_process(
    COMMAND ${CMAKE_CURRENT_SOURCE_DIR}/scripts/fetch_llama_cpp ${EBB_DEPS_DIR}
    RESULT_VARIABLE status)
  file(LOCK ${EBB_DEPS_DIR}/.lock RELEASE)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "scripts/fetch_llama_cpp failed (${status}). Give a source folder with "
                        "-DEBB_LLAMA_CPP_DIR=FOLDER to build without the network.")
  endif()
  set(llama_cpp_dir ${EBB_DEPS_DIR}/llama.cpp)
else()
  set(llama_cpp_dir ${EBB_LLAMA_CPP_DIR})
endif()
if(NOT EXISTS ${llama_cpp_dir}/common/chat.h)
  message(FATAL_ERROR "${llama_cpp_dir} is no llama.cpp source folder (it has no common/chat.h)")
endif()

function(ebb_add_llama_cpp dir)
  set(BUILD_SHARED_LIBS OFF)
  foreach(part COMMON TESTS TOOLS EXAMPLES SERVER APP UI MTMD)
    set(LLAMA_BUILD_${part} OFF)
  endforeach()
  set(LLAMA_ALL_WARNINGS OFF)
  set(GGML_CCACHE OFF)
  set(GGML_NATIVE ${EBB_NATIVE})
  set(GGML_OPENMP ${EBB_OPENMP})
  set(CMAKE_POLICY_DEFAULT_CMP0077 NEW)
  set(CMAKE_MESSAGE_LOG_LEVEL WARNING)
  # A debug build is for our code: ggml at -O0 makes every test minutes long.
  set(CMAKE_C_FLAGS_DEBUG "-O2 -g1")
  set(CMAKE_CXX_FLAGS_DEBUG "-O2 -g1")
  add_compile_options(-w)
  add_subdirectory(${dir} ${CMAKE_BINARY_DIR}/llama.cpp EXCLUDE_FROM_ALL SYSTEM)

  set(common ${dir}/common)
  include(${common}/parsers/sources.cmake)
  file(GLOB chat_sources ${common}/chat*.cpp ${common}/jinja/*.cpp)
  add_library(ebb_llama_chat STATIC EXCLUDE_FROM_ALL
    ${chat_sources} ${LLAMA_CHAT_PARSERS_SOURCES}
    ${common}/json.cpp ${common}/json-schema.cpp ${common}/json-schema-to-grammar.cpp
    ${common}/log.cpp ${common}/peg-parser.cpp ${common}/trie.cpp ${common}/unicode.cpp)
  target_include_directories(ebb_llama_chat SYSTEM PUBLIC ${common} PRIVATE ${dir}/vendor)
  target_compile_features(ebb_llama_chat PUBLIC cxx_std_17)
  target_link_libraries(ebb_llama_chat PUBLIC llama)
endfunction()
ebb_add_llama_cpp(${llama_cpp_dir})
