// Locks files that one process at a time may use, by a lock on the open file (flock), which the
// system releases when the process ends.
#ifndef EBB_BASE_FILES_LOCKED_FILE_H_
#define EBB_BASE_FILES_LOCKED_FILE_H_

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <utility>

namespace ebb {

// FileDescriptor closes its file when it is destroyed. -1: no file.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int fd) : fd_(fd) {}
  FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~FileDescriptor() {
    if (fd_ >= 0) close(fd_);
  }

  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_ = -1;
};

// Returns whether `name` still names the open regular file `fd`; it may have been renamed or
// removed.
inline bool IsFileOf(int fd, const std::string& name) {
  struct stat opened = {};
  struct stat named = {};
  return fstat(fd, &opened) == 0 && lstat(name.c_str(), &named) == 0 &&
         opened.st_dev == named.st_dev && opened.st_ino == named.st_ino && S_ISREG(opened.st_mode);
}

struct LockedFile {
  FileDescriptor file;
  bool is_held = false;  // locked by another holder; the file is not open
  // Are the errno and the failed operation if the file is not locked: "open", with the file closed,
  // or "lock". EINVAL: `name` is no regular file.
  int error = 0;
  const char* failed = "";
};

// Opens and locks the regular file `name` without waiting, and creates it if `flags` have O_CREAT.
// Does not follow links. If another process removes the file between opening and locking, tries
// again.
inline LockedFile LockFile(const std::string& name, int flags = O_CREAT, mode_t mode = 0600) {
  constexpr int kTries = 100;
  for (int i = 0; i < kTries; ++i) {
    FileDescriptor file(open(name.c_str(), flags | O_RDWR | O_NOFOLLOW | O_CLOEXEC, mode));
    if (!file.is_open()) return {.file = {}, .error = errno, .failed = "open"};
    struct stat opened = {};
    if (fstat(file.get(), &opened) == 0 && !S_ISREG(opened.st_mode)) {
      return {.file = {}, .error = EINVAL, .failed = "open"};
    }
    if (flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
      const int error = errno;
      if (error == EWOULDBLOCK)
        return {.file = {}, .is_held = true, .error = error, .failed = "lock"};
      return {.file = std::move(file), .error = error, .failed = "lock"};
    }
    if (IsFileOf(file.get(), name)) return {.file = std::move(file)};
  }
  return {.file = {}, .error = EBUSY, .failed = "lock"};
}

}  // namespace ebb

#endif  // EBB_BASE_FILES_LOCKED_FILE_H_
