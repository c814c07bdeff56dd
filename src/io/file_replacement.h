// FileReplacement replaces a file as a whole or not at all: it writes PATH.part, syncs it, renames
// it over PATH, and syncs the folder. If the process ends before the rename, the old file is
// unchanged; a PATH.part that is left over is overwritten next time.
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
#include "src/base/files/locked_file.h"
#include "src/io/disk_faults.h"

namespace ebb {

class FileReplacement {
 public:
  // Creates PATH.part. If `path` is a link, replaces the file that the link names, which need not
  // exist. A new file is accessible to its owner alone; a file that replaces another one gets its
  // permissions. Errors: InvalidArgument (not a regular file), NotFound (no such folder),
  // StorageFull (the disk is full), IoError, also if another process is writing PATH.part.
  static Result<std::unique_ptr<FileReplacement>> Create(const std::string& path,
                                                         FaultHook faults = {});
  // Removes PATH.part, and leaves PATH unchanged, unless Commit() renamed it.
  ~FileReplacement();
  FileReplacement(const FileReplacement&) = delete;
  FileReplacement& operator=(const FileReplacement&) = delete;

  // Appends bytes to PATH.part. After an error nothing more is written, and Commit() returns that
  // error.
  Status Write(std::span<const std::byte> bytes);
  // Commit() syncs PATH.part (unless Sync::kNo), renames it over PATH and syncs the folder. kNo is
  // for a file that is of no use once the process has ended. If only the sync of the folder fails,
  // the new file is in place but may not survive a power cut.
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
  std::string path_;    // with links resolved
  std::string part_;    // PATH.part; empty once renamed
  std::string folder_;  // the folder of both files
  FileDescriptor file_;
  uint64_t written_ = 0;
  std::vector<std::byte> buffer_;
  Status status_;
};

}  // namespace ebb

#endif  // EBB_IO_FILE_REPLACEMENT_H_
