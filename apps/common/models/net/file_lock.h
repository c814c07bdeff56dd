// A lock between processes on a file, as huggingface_hub takes it (flock).
#ifndef EBB_APPS_PULL_NET_FILE_LOCK_H_
#define EBB_APPS_PULL_NET_FILE_LOCK_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "ebb/status.h"

namespace ebb::cli {

class FileLock {
 public:
  // Makes the file and its folders, and waits while another process holds the lock; `on_wait` is
  // called once where it must. Errors: kIo; kCancelled after Ctrl-C.
  static Result<std::unique_ptr<FileLock>> Take(const std::string& path,
                                                const std::function<void()>& on_wait);
  // Does not wait. Errors: kIo where another process holds the lock.
  static Result<std::unique_ptr<FileLock>> TryTake(const std::string& path);
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  explicit FileLock(int file) : file_(file) {}
  int file_;
};

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_NET_FILE_LOCK_H_
