// FileLock locks a file that is replaced as a whole, such as a session file. It locks PATH.lock
// next to the file, since a lock on the file itself would stay with the file that was replaced.
//
// Thread safety: none.
#ifndef EBB_IO_FILE_LOCK_H_
#define EBB_IO_FILE_LOCK_H_

#include <memory>
#include <string>

#include "ebb/status.h"
#include "src/base/files/locked_file.h"

namespace ebb {

class FileLock {
 public:
  // Locks the file at `path`, which need not exist, or fails at once. If `path` is a link, locks
  // the file that the link names. Errors: IoError (another FileLock, of this process or of another
  // one, holds the lock; or the folder cannot be written), NotFound (no such folder).
  static Result<std::unique_ptr<FileLock>> Take(const std::string& path);
  // Removes PATH.lock and releases the lock. If a process is killed, the system releases its lock;
  // PATH.lock then stays and does no harm.
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  FileLock(std::string name, FileDescriptor file)
      : name_(std::move(name)), file_(std::move(file)) {}

  std::string name_;  // PATH.lock
  FileDescriptor file_;
};

}  // namespace ebb

#endif  // EBB_IO_FILE_LOCK_H_
