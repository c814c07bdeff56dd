// A file seen as memory, read only. Pages are read when touched and belong to the page cache.
//
// Other programs may change the file meanwhile. Where they truncate it, or its disk fails, a touch
// raises SIGBUS: a handler, which Open() installs for the process, puts zeros in the place of the
// whole mapping, so that the touch succeeds and CheckUnchanged() fails from then on. The handler
// passes a SIGBUS from any other address on to the handler that was there before.
//
// Ownership: movable; the mapping ends with the object. Thread safety: immutable after Open().
#ifndef EBB_MODEL_MAPPED_FILE_H_
#define EBB_MODEL_MAPPED_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ebb/status.h"

namespace ebb {

struct GuardedRange;  // what the handler of SIGBUS knows of a mapping

// The field of errors that a path has each time it is opened: ModelOptions' name for it.
inline constexpr std::string_view kPathField = "path";

class MappedFile {
 public:
  // Errors: NotFound; IoError of the field kPathField (no permission, no regular file), and of none
  // (the system lacks memory or descriptors, a disk fails); Corrupt (empty).
  static Result<MappedFile> Open(const std::string& path);
  // Sees `bytes` as a file that never changes. REQUIRES: they outlive the object.
  static MappedFile Of(std::span<const std::byte> bytes) { return MappedFile(bytes); }
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  // Fails with IoError, which names the file without its folder, once the file was truncated,
  // written to or became unreadable since Open(): what was read of it since then may be anything.
  // A file that another one replaced (rename, unlink) is unchanged. One call of the system.
  [[nodiscard]] Status CheckUnchanged() const;

  // Asks the system to read the whole file into the page cache. Returns when most of it was read:
  // the disk's queue is short.
  void Prefetch() const;
  // Brings the pages of a range into this mapping, so that a later touch does not fault. Best
  // effort. REQUIRES: the range lies in bytes().
  void Populate(std::span<const std::byte> range) const;
  // Takes the pages that lie wholly in the range out of this mapping; they can be read again.
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

#endif  // EBB_MODEL_MAPPED_FILE_H_
