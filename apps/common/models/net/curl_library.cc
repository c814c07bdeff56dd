#include "apps/common/models/net/curl_library.h"

#include <string>

#include <dlfcn.h>
#include <fmt/format.h>

namespace ebb::cli {
namespace {

constexpr const char* kFile = "libcurl.so.4";

struct LoadedCurl {
  CurlLibrary library;
  std::string error;  // empty: it is loaded
};

LoadedCurl OpenLibrary() {
  LoadedCurl loaded;
  void* file = dlopen(kFile, RTLD_NOW | RTLD_LOCAL);
  if (file == nullptr) {
    const char* reason = dlerror();
    loaded.error = fmt::format("downloads need {} (Debian: libcurl4): {}", kFile,
                               reason == nullptr ? "it cannot be loaded" : reason);
    return loaded;
  }
  const auto find = [&]<typename Function>(const char* name, Function* function) {
    *function = reinterpret_cast<Function>(dlsym(file, name));
    if (*function == nullptr) loaded.error = fmt::format("{} has no {}", kFile, name);
  };
  CurlLibrary& library = loaded.library;
  find("curl_global_init", &library.global_init);
  find("curl_easy_init", &library.easy_init);
  find("curl_easy_cleanup", &library.easy_cleanup);
  find("curl_easy_reset", &library.easy_reset);
  find("curl_easy_setopt", &library.easy_setopt);
  find("curl_easy_perform", &library.easy_perform);
  find("curl_easy_getinfo", &library.easy_getinfo);
  find("curl_easy_strerror", &library.easy_strerror);
  find("curl_slist_append", &library.slist_append);
  find("curl_slist_free_all", &library.slist_free_all);
  if (!loaded.error.empty()) return loaded;
  library.global_init(CURL_GLOBAL_DEFAULT);
  CURL* probe = library.easy_init();
  if (probe == nullptr ||
      library.easy_setopt(probe, CURLOPT_PROTOCOLS_STR, "http,https") != CURLE_OK) {
    loaded.error = fmt::format("downloads need {} of version 7.85 or newer", kFile);
  }
  library.easy_cleanup(probe);
  return loaded;
}

}  // namespace

Result<const CurlLibrary*> LoadCurl() {
  static const LoadedCurl loaded = OpenLibrary();
  if (!loaded.error.empty()) return NotFound(loaded.error);
  return &loaded.library;
}

}  // namespace ebb::cli
