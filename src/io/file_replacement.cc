// Invariant: while part_ is not empty, file_ is open and has the lock on the file named part_.
#include "src/io/file_replacement.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "src/io/file_names.h"

namespace ebb {
namespace {

constexpr size_t kBufferBytes = size_t{1} << 20;
constexpr mode_t kPermissions = 0777;
constexpr mode_t kOwnersAlone = 0600;

bool MeansNoSpace(int error) { return error == ENOSPC || error == EDQUOT || error == EFBIG; }

}  // namespace

Status FileReplacement::Error(const char* what, const std::string& name, int error) const {
  std::string message =
      fmt::format("cannot {} {}: {}", what, name, std::generic_category().message(error));
  if (error == ENOENT || error == ENOTDIR) return NotFound(std::move(message));
  return MeansNoSpace(error) ? StorageFull(std::move(message)) : IoError(std::move(message));
}

Result<std::unique_ptr<FileReplacement>> FileReplacement::Create(const std::string& path,
                                                                 FaultHook faults) {
  std::unique_ptr<FileReplacement> file(new FileReplacement);
  file->faults_ = std::move(faults);
  EBB_RETURN_IF_ERROR(file->Open(path));
  file->buffer_.reserve(kBufferBytes);
  return file;
}

Status FileReplacement::Open(const std::string& path) {
  path_ = WithoutLinks(path);
  struct stat old = {};
  const bool replaces = stat(path_.c_str(), &old) == 0;
  if (!replaces && errno != ENOENT) return Error("write", path, errno);
  if (replaces && !S_ISREG(old.st_mode)) {
    return InvalidArgument(fmt::format("{} is no regular file", path));
  }
  folder_ = std::filesystem::path(path_).parent_path().string();
  if (folder_.empty()) folder_ = ".";
  const std::string part = path_ + ".part";
  errno = FaultError(faults_, {.call = DiskCall::kOpen});
  if (errno != 0) return Error("write", part, errno);
  LockedFile locked = LockFile(part, O_CREAT, kOwnersAlone);
  if (locked.is_held) {
    return IoError(fmt::format("cannot write {}: another process is writing it", part));
  }
  if (locked.error == EINVAL) return InvalidArgument(fmt::format("{} is no regular file", part));
  if (locked.error == ENOENT || locked.error == ENOTDIR) {  // the folder is missing
    return Error("write", path, locked.error);
  }
  if (locked.error != 0) return Error(locked.failed, part, locked.error);
  file_ = std::move(locked.file);
  part_ = part;
  // Sets the permissions before writing, because a PATH.part left over, or made by another user,
  // may have any.
  if (fchmod(file_.get(), replaces ? old.st_mode & kPermissions : kOwnersAlone) != 0) {
    return Error("set the permissions of", part_, errno);
  }
  return ftruncate(file_.get(), 0) == 0 ? OkStatus() : Error("write", part_, errno);
}

FileReplacement::~FileReplacement() {
  if (!part_.empty()) unlink(part_.c_str());
}

Status FileReplacement::Write(std::span<const std::byte> bytes) {
  EBB_RETURN_IF_ERROR(status_);
  while (!bytes.empty()) {
    const auto some = bytes.first(std::min(bytes.size(), kBufferBytes - buffer_.size()));
    buffer_.insert(buffer_.end(), some.begin(), some.end());
    bytes = bytes.subspan(some.size());
    if (buffer_.size() == kBufferBytes) EBB_RETURN_IF_ERROR(Flush());
  }
  return OkStatus();
}

Status FileReplacement::Flush() {
  std::span<const std::byte> left = buffer_;
  while (!left.empty() && status_.ok()) {
    DiskFault fault;
    if (faults_) {
      fault = faults_({.call = DiskCall::kWrite, .offset = written_, .num_bytes = left.size()});
    }
    errno = fault.error;
    const ssize_t count =
        errno != 0 ? -1 : write(file_.get(), left.data(), std::min(left.size(), fault.max_bytes));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      status_ = Error("write", part_, errno);
    } else {
      left = left.subspan(static_cast<size_t>(count));
      written_ += static_cast<uint64_t>(count);
    }
  }
  buffer_.clear();
  return status_;
}

Status FileReplacement::SyncFile(int fd, const std::string& name) {
  errno = FaultError(faults_, {.call = DiskCall::kSync});
  if (errno == 0 && fsync(fd) == 0) return OkStatus();
  if (errno == EINVAL) return OkStatus();  // the file system cannot sync folders
  return Error("sync", name, errno);
}

Status FileReplacement::Commit(Sync sync) {
  EBB_RETURN_IF_ERROR(status_);
  EBB_RETURN_IF_ERROR(Flush());
  if (sync == Sync::kYes) EBB_RETURN_IF_ERROR(SyncFile(file_.get(), part_));
  errno = FaultError(faults_, {.call = DiskCall::kRename});
  if (errno != 0 || rename(part_.c_str(), path_.c_str()) != 0) {
    return Error("rename over its old file", part_, errno);
  }
  part_.clear();
  if (sync == Sync::kNo) return OkStatus();
  const int folder = open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  // The new file is in place. A folder without read permission cannot be synced, which is no error.
  if (folder < 0) return errno == EACCES ? OkStatus() : Error("sync", folder_, errno);
  const Status synced = SyncFile(folder, folder_);
  close(folder);
  return synced;
}

}  // namespace ebb
