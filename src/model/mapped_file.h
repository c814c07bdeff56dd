// A file seen as memory, read only. Pages are read when touched and belong to the page cache.
//
// Ownership: movable; the mapping ends with the object. Thread safety: immutable after Open().
#ifndef EBB_MODEL_MAPPED_FILE_H_
#define EBB_MODEL_MAPPED_FILE_H_

#include <cstddef>
#include <span>
#include <string>

#include "ebb/status.h"

namespace ebb {

class MappedFile {
 public:
  // Errors: NotFound; IoError (no permission, no regular file); Corrupt (empty).
  static Result<MappedFile> Open(const std::string& path);
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }

  // Lets the system read the whole file ahead, without waiting for it.
  void Prefetch() const;
  // Brings the pages of a range into this mapping, so that a later touch does not fault. Best
  // effort. REQUIRES: the range lies in bytes().
  void Populate(std::span<const std::byte> range) const;
  // Takes the pages that lie wholly in the range out of this mapping; they can be read again.
  void Drop(std::span<const std::byte> range) const;

 private:
  explicit MappedFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::span<const std::byte> bytes_;
};

}  // namespace ebb

#endif  // EBB_MODEL_MAPPED_FILE_H_
