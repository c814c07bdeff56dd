#ifndef EBB_STORE_FILE_DESCRIPTOR_H_
#define EBB_STORE_FILE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace ebb::store {

// Closes a file descriptor when it is destroyed; -1 means none.
class FileDescriptor {
 public:
  explicit FileDescriptor(int fd = -1) : fd_(fd) {}
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
  int fd_;
};

}  // namespace ebb::store

#endif  // EBB_STORE_FILE_DESCRIPTOR_H_
