# Before llama.cpp, which is instrumented too: the thread sanitizer calls every lock that it did
# not see taken a race, and the address sanitizer finds what a hostile file does inside a reader.
if(EBB_SANITIZE)
  # Undefined behaviour is checked in our code alone (compile_options.cmake).
  string(REPLACE "," ";" EBB_SANITIZERS "${EBB_SANITIZE}")
  set(EBB_SANITIZERS_EVERYWHERE ${EBB_SANITIZERS})
  list(REMOVE_ITEM EBB_SANITIZERS_EVERYWHERE undefined fuzzer)
  if("fuzzer" IN_LIST EBB_SANITIZERS)
    list(APPEND EBB_SANITIZERS_EVERYWHERE fuzzer-no-link)
  endif()
  list(JOIN EBB_SANITIZERS_EVERYWHERE "," flags)
  if(flags)
    add_compile_options(-fsanitize=${flags} -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${flags})
  endif()
endif()
