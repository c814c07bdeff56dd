// A file that takes the place of another one as a whole, or not at all: written beside it as
// PATH.part, synced, renamed over it, and the folder synced. Whatever ends the process before the
// rename leaves the old file as it was; a PATH.part that is left over is written over next time.
//
// Thread safety: none.
#ifndef EBB_IO_FILE_REPLACEMENT_H_
#define EBB_IO_FILE_REPLACEMENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ebb/status.h"
#include "src/io/disk_faults.h"

namespace ebb {

class FileReplacement {
 public:
  // A link is followed: the file that it names, which may not be there yet, is replaced. A new file
  // is its owner's alone; one that replaces another has that one's permissions.
  // Errors: InvalidArgument (not a regular file), NotFound (no such folder), StorageFull (the
  // disk is full), IoError, which is also for a PATH.part that another process is writing.
  static Result<std::unique_ptr<FileReplacement>> Create(const std::string& path,
                                                         FaultHook faults = {});
  // Without a Commit() that got as far as the rename, PATH.part goes and PATH is as it was.
  ~FileReplacement();
  FileReplacement(const FileReplacement&) = delete;
  FileReplacement& operator=(const FileReplacement&) = delete;

  // After an error nothing more is written, and Commit() returns that error.
  Status Write(std::span<const std::byte> bytes);
  // When only the sync of the folder fails, the new file is in its place, but may not outlive a
  // power cut. Sync::kNo syncs neither: for a file that is of no use once the process has ended.
  enum class Sync { kYes, kNo };
  Status Commit(Sync sync = Sync::kYes);
  [[nodiscard]] uint64_t num_bytes() const { return written_ + buffer_.size(); }

 private:
  FileReplacement() = default;
  Status Open(const std::string& path);
  Status Flush();
  Status SyncFile(int fd, const std::string& name);
  [[nodiscard]] Status Error(const char* what, const std::string& name, int error) const;

  FaultHook faults_;
  std::string path_;    // without links
  std::string part_;    // being written; empty: renamed
  std::string folder_;  // of both
  int fd_ = -1;
  uint64_t written_ = 0;
  std::vector<std::byte> buffer_;
  Status status_;
};

}  // namespace ebb

#endif  // EBB_IO_FILE_REPLACEMENT_H_
