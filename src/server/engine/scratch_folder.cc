#include "src/server/engine/scratch_folder.h"

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace ebb::server {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kPrefix = "ebb-sessions-";
constexpr const char* kLock = "lock";

// Removes the scratch folders of dead processes: those whose lock file is not locked.
void RemoveLeftovers(const fs::path& parent) {
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error)) {
    if (!it->path().filename().string().starts_with(kPrefix)) continue;
    const LockedFile lock = LockFile(it->path() / kLock, /*flags=*/0);
    if (lock.error != 0) continue;
    std::error_code ignored;
    fs::remove_all(it->path(), ignored);
  }
}

}  // namespace

std::string NewScratchPath(std::string_view folder, std::string_view kind) {
  static std::atomic<uint64_t> next = 0;
  return fmt::format("{}/{}-{}", folder, kind, next++);
}

Result<ScratchFolder> ScratchFolder::Create() {
  std::error_code error;
  const fs::path parent = fs::temp_directory_path(error);
  if (error) return IoError(fmt::format("no folder for files: {}", error.message()));
  RemoveLeftovers(parent);
  // Retries, because another starting process may remove the new folder before this one locks it.
  constexpr int kAttempts = 10;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    ScratchFolder folder;
    std::string path = (parent / fmt::format("{}XXXXXX", kPrefix)).string();
    if (mkdtemp(path.data()) == nullptr) {
      return IoError(
          fmt::format("cannot make {}: {}", path, std::generic_category().message(errno)));
    }
    folder.path_ = path;
    LockedFile lock = LockFile(path + "/" + kLock);
    folder.lock_ = std::move(lock.file);
    if (lock.error == 0) return folder;
  }
  return IoError(fmt::format("cannot lock a folder in {}", parent.string()));
}

ScratchFolder::ScratchFolder(ScratchFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})), lock_(std::move(other.lock_)) {}

ScratchFolder& ScratchFolder::operator=(ScratchFolder&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(lock_, other.lock_);
  return *this;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
}

}  // namespace ebb::server
