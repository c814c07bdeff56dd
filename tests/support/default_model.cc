#include "tests/support/default_model.h"

#include <cstdlib>
#include <filesystem>

namespace ebb {

std::string DefaultModelPath() {
  const auto variable = [](const char* name) -> std::filesystem::path {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
  };
  std::filesystem::path path = variable("EBB_MODEL");
  if (path.empty()) {
    std::filesystem::path cache = variable("XDG_CACHE_HOME");
    if (cache.empty()) cache = variable("HOME") / ".cache";
    path = cache / "ebb" / "SmolLM2-135M-Instruct.Q4_1.gguf";
  }
  return std::filesystem::exists(path) ? path.string() : "";
}

}  // namespace ebb
