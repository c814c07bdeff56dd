#include "src/server/engine/scratch_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

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

// Locks the folder's lock file and returns its descriptor; -1 if another process holds the lock or
// the file cannot be opened.
int Lock(const fs::path& folder, int flags) {
  const int fd = open((folder / kLock).c_str(), flags | O_RDWR | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

// Returns whether `fd` is the lock file that is in the folder now: the folder may have been removed
// and created again meanwhile.
bool IsLockOf(const fs::path& folder, int fd) {
  struct stat opened = {}, named = {};
  return fstat(fd, &opened) == 0 && stat((folder / kLock).c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

// Removes folders whose lock no process holds.
void RemoveLeftovers(const fs::path& parent) {
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error)) {
    if (!it->path().filename().string().starts_with(kPrefix)) continue;
    const int fd = Lock(it->path(), 0);
    if (fd < 0) continue;
    std::error_code ignored;
    fs::remove_all(it->path(), ignored);
    close(fd);
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
  // Another process that starts at the same time may remove the folder before it is locked; this
  // process then makes another one.
  constexpr int kAttempts = 10;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    ScratchFolder folder;
    std::string path = (parent / fmt::format("{}XXXXXX", kPrefix)).string();
    if (mkdtemp(path.data()) == nullptr) {
      return IoError(
          fmt::format("cannot make {}: {}", path, std::generic_category().message(errno)));
    }
    folder.path_ = path;
    folder.lock_ = Lock(path, O_CREAT);
    if (folder.lock_ >= 0 && IsLockOf(path, folder.lock_)) return folder;
  }
  return IoError(fmt::format("cannot lock a folder in {}", parent.string()));
}

ScratchFolder::ScratchFolder(ScratchFolder&& other) noexcept
    : path_(std::exchange(other.path_, {})), lock_(std::exchange(other.lock_, -1)) {}

ScratchFolder& ScratchFolder::operator=(ScratchFolder&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(lock_, other.lock_);
  return *this;
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  if (!path_.empty()) fs::remove_all(path_, ignored);
  if (lock_ >= 0) close(lock_);
}

}  // namespace ebb::server
