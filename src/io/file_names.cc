#include "src/io/file_names.h"

#include <filesystem>
#include <system_error>

namespace ebb {

std::string WithoutLinks(const std::string& path) {
  namespace fs = std::filesystem;
  constexpr int kMostLinks = 40;  // as many as Linux follows
  std::error_code error;
  fs::path at = path;
  for (int i = 0; i < kMostLinks && fs::is_symlink(fs::symlink_status(at, error)); ++i) {
    at = at.parent_path() / fs::read_symlink(at, error);
  }
  const std::string canonical = fs::weakly_canonical(at, error).string();
  return error || canonical.empty() ? path : canonical;
}

}  // namespace ebb
