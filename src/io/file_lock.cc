#include "src/io/file_lock.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "src/io/file_names.h"

namespace ebb {

Result<std::unique_ptr<FileLock>> FileLock::Take(const std::string& path) {
  const std::string name = WithoutLinks(path) + ".lock";
  const auto error = [&](const char* what) {
    const int code = errno;
    std::string message =
        fmt::format("cannot {} {}: {}", what, name, std::generic_category().message(code));
    return code == ENOENT || code == ENOTDIR ? NotFound(std::move(message))
                                             : IoError(std::move(message));
  };
  constexpr int kTries = 100;  // of which each finds that another process has just ended its own
  for (int i = 0; i < kTries; ++i) {
    const int fd = open(name.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return error("write");
    std::unique_ptr<FileLock> lock(new FileLock("", fd));
    if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK) return error("lock");
      return IoError(fmt::format("another process is using {}; wait until it ends", path));
    }
    if (IsFileOf(fd, name)) {
      lock->name_ = name;
      return lock;
    }
  }
  return IoError(fmt::format("cannot lock {}: it keeps changing", name));
}

FileLock::~FileLock() {
  // Unlink before the lock is released: afterwards another process may lock a file of this name.
  if (!name_.empty()) unlink(name_.c_str());
  close(fd_);
}

}  // namespace ebb
