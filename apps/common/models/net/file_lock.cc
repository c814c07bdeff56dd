#include "apps/common/models/net/file_lock.h"

#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "apps/common/interrupt.h"

namespace ebb::cli {
namespace {

Result<int> OpenLockFile(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error) return IoError(fmt::format("{}: {}", path, error.message()));
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return IoError(fmt::format("{}: {}", path, std::strerror(errno)));
  return file;
}

// Returns whether the locked file still has its name. The previous holder of the lock may have
// removed the file, and others would then lock a new file of that name.
bool HasName(int file, const std::string& path) {
  struct stat of_file = {};
  struct stat of_name = {};
  return fstat(file, &of_file) == 0 && stat(path.c_str(), &of_name) == 0 &&
         of_file.st_ino == of_name.st_ino && of_file.st_dev == of_name.st_dev;
}

}  // namespace

FileLock::~FileLock() { close(file_); }

Result<std::unique_ptr<FileLock>> FileLock::Take(const std::string& path,
                                                 const std::function<void()>& on_wait) {
  using namespace std::chrono_literals;
  bool has_waited = false;
  while (!Interrupted()) {
    EBB_ASSIGN_OR_RETURN(const int file, OpenLockFile(path));
    std::unique_ptr<FileLock> lock(new FileLock(file));
    // A file system without locks gives another error; the lock then counts as taken, so two
    // processes may fetch at once.
    const bool is_free = flock(file, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    if (is_free && HasName(file, path)) return lock;
    if (is_free) continue;
    if (!has_waited && on_wait) on_wait();
    has_waited = true;
    std::this_thread::sleep_for(50ms);
  }
  return Cancelled("interrupted");
}

Result<std::unique_ptr<FileLock>> FileLock::TryTake(const std::string& path) {
  EBB_ASSIGN_OR_RETURN(const int file, OpenLockFile(path));
  std::unique_ptr<FileLock> lock(new FileLock(file));
  if (flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return IoError(fmt::format("{}: another process is fetching the file", path));
  }
  return lock;
}

}  // namespace ebb::cli
