// Locks a file against other processes in the way huggingface_hub does (flock).
#ifndef EBB_APPS_PULL_NET_FILE_LOCK_H_
#define EBB_APPS_PULL_NET_FILE_LOCK_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "ebb/status.h"
#include "src/base/files/locked_file.h"

namespace ebb::cli {

// FileLock holds an exclusive lock (flock) on a file until it is destroyed.
class FileLock {
 public:
  // Creates the file and its folders and waits while another process holds the lock; calls
  // `on_wait` once if it has to wait. Errors: kIo; kCancelled after Ctrl-C.
  static Result<std::unique_ptr<FileLock>> Take(const std::string& path,
                                                const std::function<void()>& on_wait);
  // Locks the file like Take(), without waiting. Errors: kIo if another process holds the lock.
  static Result<std::unique_ptr<FileLock>> TryTake(const std::string& path);

 private:
  explicit FileLock(FileDescriptor file) : file_(std::move(file)) {}
  FileDescriptor file_;
};

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_NET_FILE_LOCK_H_
