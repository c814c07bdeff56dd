# After llama.cpp: what is set here holds for our targets, through ebb_options.
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
# No -DNDEBUG: the assertions of the libraries we call stay on. No -march either: Highway picks
# the instruction set at run time.
set(CMAKE_CXX_FLAGS_RELEASE "-O3 -g1")
set(CMAKE_CXX_FLAGS_DEBUG "-Og -g")

add_library(ebb_options INTERFACE)
# -ffp-contract=off: a compiler that fuses a multiplication and an addition in one inlined copy of
# a function and not in another breaks bit-identical results. Fused operations are written out.
# -Wno-missing-field-initializers: a designated initialiser may leave defaults.
target_compile_options(ebb_options INTERFACE
  -Wall -Wextra -Wno-missing-field-initializers -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # g++ 12 finds both in inlined std::string and fmt code where there is nothing (GCC bug 105651).
  target_compile_options(ebb_options INTERFACE -Wno-restrict -Wno-stringop-overflow)
  # ccache asks for it where headers are precompiled.
  target_compile_options(ebb_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)
  if(EBB_SANITIZERS)
    # The same of std::regex, once it is instrumented (GCC bug 105562).
    target_compile_options(ebb_options INTERFACE -Wno-maybe-uninitialized)
  endif()
endif()
if("undefined" IN_LIST EBB_SANITIZERS)
  target_compile_options(ebb_options INTERFACE -fsanitize=undefined -fno-sanitize-recover=undefined)
  target_link_options(ebb_options INTERFACE -fsanitize=undefined)
endif()
if(EBB_COVERAGE)
  target_compile_options(ebb_options INTERFACE --coverage)
  target_link_options(ebb_options INTERFACE --coverage)
endif()
# The server and the program: the time that they take is the library's.
set(EBB_CHEAPLY_COMPILED $<$<CONFIG:Release>:-O1>)
# Tests of a release build: a third less to compile, and programs without what only a debugger reads, for which
# there is the preset `dev`.
set(EBB_QUICKLY_COMPILED $<$<CONFIG:Release>:-O1>)
set(EBB_TEST_LINK_OPTIONS "")
if(NOT EBB_SANITIZERS)
  list(APPEND EBB_QUICKLY_COMPILED $<$<CONFIG:Release>:-g0>)
  set(EBB_TEST_LINK_OPTIONS $<$<CONFIG:Release>:LINKER:--strip-debug>)
endif()
