#include "src/cli/default_model.h"

#include <cstdlib>

namespace ebb::cli {

std::string CacheFolder() {
  // The XDG specification: a relative path counts as unset.
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg != nullptr && xdg[0] == '/') {
    return std::string(xdg) + "/ebb";
  }
  const char* home = std::getenv("HOME");
  return home == nullptr || home[0] == '\0' ? "" : std::string(home) + "/.cache/ebb";
}

std::string DefaultModelPath() {
  const std::string folder = CacheFolder();
  return folder.empty() ? "" : folder + "/" + std::string(DefaultModel().file_name);
}

}  // namespace ebb::cli
