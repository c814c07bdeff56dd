#include "apps/common/models/net/file_lock.h"

#include <chrono>
#include <cstring>
#include <filesystem>
#include <thread>

#include <fmt/format.h>

#include "apps/common/terminal/interrupt.h"

namespace ebb::cli {
namespace {

// Makes the folders of the file too. On a file system without locks a second process goes
// unnoticed.
Result<LockedFile> Lock(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  if (error) return IoError(fmt::format("{}: {}", path, error.message()));
  LockedFile locked = LockFile(path, O_CREAT, 0666);
  if (std::string_view(locked.failed) == "open") {
    return IoError(fmt::format("{}: {}", path, std::strerror(locked.error)));
  }
  return locked;
}

}  // namespace

Result<std::unique_ptr<FileLock>> FileLock::Take(const std::string& path,
                                                 const std::function<void()>& on_wait) {
  using namespace std::chrono_literals;
  bool has_waited = false;
  while (!Interrupted()) {
    EBB_ASSIGN_OR_RETURN(LockedFile locked, Lock(path));
    if (!locked.is_held) return std::unique_ptr<FileLock>(new FileLock(std::move(locked.file)));
    if (!has_waited && on_wait) on_wait();
    has_waited = true;
    std::this_thread::sleep_for(50ms);
  }
  return Cancelled("interrupted");
}

Result<std::unique_ptr<FileLock>> FileLock::TryTake(const std::string& path) {
  EBB_ASSIGN_OR_RETURN(LockedFile locked, Lock(path));
  if (locked.is_held) {
    return IoError(fmt::format("{}: another process is fetching the file", path));
  }
  return std::unique_ptr<FileLock>(new FileLock(std::move(locked.file)));
}

}  // namespace ebb::cli
