# Writes commit.h, which names the commit that is built, for the records of evaluations:
#   cmake -DROOT=REPOSITORY -DHEADER=FILE -P commit.cmake
# Included by another list file, it makes the target `ebb_commit`, which does so at every build.
if(NOT CMAKE_SCRIPT_MODE_FILE)
  set(EBB_COMMIT_FOLDER ${CMAKE_CURRENT_BINARY_DIR}/commit)
  add_custom_target(ebb_commit
    COMMAND ${CMAKE_COMMAND} -DROOT=${EBB_ROOT} -DHEADER=${EBB_COMMIT_FOLDER}/commit.h
      -P ${CMAKE_CURRENT_LIST_DIR}/commit.cmake
    BYPRODUCTS ${EBB_COMMIT_FOLDER}/commit.h COMMENT "" VERBATIM)
  return()
endif()
set(commit "")
find_program(git git)
if(git)
  execute_process(COMMAND ${git} -C ${ROOT} describe --always --dirty --abbrev=12 --exclude=*
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
set(text "#define EBB_COMMIT \"${commit}\"\n")
set(before "")
if(EXISTS ${HEADER})
  file(READ ${HEADER} before)
endif()
if(NOT text STREQUAL before)
  file(WRITE ${HEADER} "${text}")
endif()
