// libcurl, loaded when the first request is sent: linked, it and the thirty libraries behind it
// would cost each run of the program six megabytes.
#ifndef EBB_APPS_PULL_NET_CURL_LIBRARY_H_
#define EBB_APPS_PULL_NET_CURL_LIBRARY_H_

#define CURL_DISABLE_TYPECHECK  // a macro around functions that are called by pointers here
#include <curl/curl.h>

#include "ebb/status.h"

// curl.h has macros of these names, which cast the arguments.
#undef curl_easy_setopt
#undef curl_easy_getinfo

namespace ebb::cli {

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

// Errors: kNotFound where the library is missing, or older than 7.85.
[[nodiscard]] Result<const CurlLibrary*> LoadCurl();

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_NET_CURL_LIBRARY_H_
