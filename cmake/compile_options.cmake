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
  -Wall -Wextra -Werror -Wno-missing-field-initializers -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # g++ 12 finds both in inlined std::string and fmt code where there is nothing (GCC bug 105651).
  target_compile_options(ebb_options INTERFACE -Wno-restrict -Wno-stringop-overflow)
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
# Of tests, which wait for the library: a third less to compile. Not of the program: what templates
# make is linked once, and the library would call the program's slower copy.
set(EBB_QUICKLY_COMPILED $<$<CONFIG:Release>:-O1>)
