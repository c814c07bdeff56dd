#include "src/io/file_lock.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>

#include "src/io/file_names.h"

namespace ebb {

Result<std::unique_ptr<FileLock>> FileLock::Take(const std::string& path) {
  const std::string name = WithoutLinks(path) + ".lock";
  LockedFile locked = LockFile(name);
  if (locked.is_held) {
    return IoError(fmt::format("another process is using {}; wait until it ends", path));
  }
  if (locked.error != 0) {
    std::string message = fmt::format("cannot {} {}: {}", locked.failed, name,
                                      std::generic_category().message(locked.error));
    return locked.error == ENOENT || locked.error == ENOTDIR ? NotFound(std::move(message))
                                                             : IoError(std::move(message));
  }
  return std::unique_ptr<FileLock>(new FileLock(name, std::move(locked.file)));
}

// Unlinks before the descriptor is closed, which releases the lock: afterwards the file of this
// name may be another process's lock.
FileLock::~FileLock() { unlink(name_.c_str()); }

}  // namespace ebb
