// Loads libcurl when the first request is sent. Linking it would load it and the thirty libraries
// behind it in each run of the program, which takes six megabytes.
#ifndef EBB_APPS_PULL_NET_CURL_LIBRARY_H_
#define EBB_APPS_PULL_NET_CURL_LIBRARY_H_

#define CURL_DISABLE_TYPECHECK  // a macro around functions that are called by pointers here
#include <curl/curl.h>

#include "ebb/status.h"

// Undefines curl.h's macros of these names, which would replace the members of CurlLibrary below.
#undef curl_easy_setopt
#undef curl_easy_getinfo

namespace ebb::cli {

// CurlLibrary holds the functions of libcurl, which is loaded when it is first needed.
struct CurlLibrary {
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_easy_init) easy_init = nullptr;
  decltype(&curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&curl_easy_reset) easy_reset = nullptr;
  decltype(&curl_easy_setopt) easy_setopt = nullptr;
  decltype(&curl_easy_perform) easy_perform = nullptr;
  decltype(&curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&curl_easy_strerror) easy_strerror = nullptr;
  decltype(&curl_slist_append) slist_append = nullptr;
  decltype(&curl_slist_free_all) slist_free_all = nullptr;
};

// Loads libcurl once and returns its functions. Errors: kNotFound if the library is missing or
// older than 7.85.
[[nodiscard]] Result<const CurlLibrary*> LoadCurl();

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_NET_CURL_LIBRARY_H_
