// One process's hold on a file that is replaced as a whole, such as a session's: a lock on
// PATH.lock, next to it, since a lock on the file itself would stay with the file that
// was replaced.
//
// Thread safety: none.
#ifndef EBB_IO_FILE_LOCK_H_
#define EBB_IO_FILE_LOCK_H_

#include <memory>
#include <string>

#include "ebb/status.h"

namespace ebb {

class FileLock {
 public:
  // Does not wait. A link is followed: the file that it names is locked, which need not be there.
  // Errors: IoError (another FileLock, of this process or of another one, has it; the folder cannot
  // be written), NotFound (no such folder).
  static Result<std::unique_ptr<FileLock>> Take(const std::string& path);
  // PATH.lock goes. The system takes the lock of a process that was killed, whose PATH.lock stays
  // and does no harm.
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  FileLock(std::string name, int fd) : name_(std::move(name)), fd_(fd) {}

  std::string name_;  // PATH.lock
  int fd_;
};

}  // namespace ebb

#endif  // EBB_IO_FILE_LOCK_H_
