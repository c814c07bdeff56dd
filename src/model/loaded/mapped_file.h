// Maps a file into memory, read-only. Pages are read when touched and belong to the page cache.
//
// Other programs may change the file while it is mapped. If they truncate it, or if its disk fails,
// touching a page raises SIGBUS. A handler, which Open() installs for the process, then replaces
// the whole mapping by zeros, so that the program continues, and CheckUnchanged() fails from then
// on. The handler passes a SIGBUS at any other address on to the handler that was installed before.
//
// Ownership: movable; the mapping ends with the object. Thread safety: immutable after Open().
#ifndef EBB_MODEL_LOADED_MAPPED_FILE_H_
#define EBB_MODEL_LOADED_MAPPED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ebb/status.h"

namespace ebb {

struct GuardedRange;  // what the handler of SIGBUS knows of a mapping

// kPathField is the field of errors that are due to the path itself and come back each time it is
// opened. ModelOptions has a member of this name.
inline constexpr std::string_view kPathField = "path";

class MappedFile {
 public:
  // Maps a file. Errors: NotFound; IoError of the field kPathField (no permission, no regular file)
  // or without a field (the system lacks memory or descriptors, a disk fails); Corrupt (empty).
  static Result<MappedFile> Open(const std::string& path);
  // Treats `bytes` as a file that never changes. REQUIRES: they outlive the object.
  static MappedFile Of(std::span<const std::byte> bytes) { return MappedFile(bytes); }
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  // Returns IoError, naming the file without its folder, if the file was truncated, written to or
  // became unreadable since Open(): data read since then may be anything. A file that was replaced
  // by another one (rename, unlink) counts as unchanged. Costs one system call.
  [[nodiscard]] Status CheckUnchanged() const;

  // Asks the system to read the whole file into the page cache. Returns when most of it has been
  // read, because the disk's queue is short.
  void Prefetch() const;
  // Maps the pages of a range, so that a later touch does not fault; may do less. REQUIRES: the
  // range lies in bytes().
  void Populate(std::span<const std::byte> range) const;
  // Unmaps the pages that lie wholly in the range, which frees memory; a later touch reads them
  // again.
  void Drop(std::span<const std::byte> range) const;

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}
  [[nodiscard]] bool is_file() const { return fd_ >= 0; }

  std::span<const std::byte> bytes_;
  std::string name_;  // without its folder
  int fd_ = -1;       // -1: memory of the caller's
  int64_t modified_seconds_ = 0;
  int64_t modified_nanoseconds_ = 0;
  GuardedRange* guard_ = nullptr;
};

}  // namespace ebb

#endif  // EBB_MODEL_LOADED_MAPPED_FILE_H_
