// A file that no other process sees: it has no name in its folder and ends with the object, or with
// the process, however that ends. Reads and writes of whole blocks (kBlockBytes) go past the page
// cache; Create() proves that by asking the system for the pages that a first read left there,
// because some file systems accept O_DIRECT and ignore it.
//
// Thread safety: none.
#ifndef EBB_IO_PRIVATE_FILE_H_
#define EBB_IO_PRIVATE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ebb/status.h"
#include "src/io/disk_faults.h"

namespace ebb {

// Offsets, sizes and memory of direct requests are multiples of this.
inline constexpr size_t kBlockBytes = 4096;

enum class Buffering {
  kDirectOnly,  // a file system that cannot do without the page cache is refused
  kAllow,       // direct where possible
};

// $TMPDIR, else /var/tmp.
[[nodiscard]] std::string DefaultFolder();

struct PrivateFileOptions {
  std::string folder;  // empty: DefaultFolder()
  Buffering buffering = Buffering::kDirectOnly;
  FaultHook faults;
};

class PrivateFile {
 public:
  // Errors: NotFound (no such folder), Unsupported (no direct I/O, no fallocate), StorageFull
  // (the disk is full), IoError.
  static Result<std::unique_ptr<PrivateFile>> Create(const PrivateFileOptions& options);
  ~PrivateFile();
  PrivateFile(const PrivateFile&) = delete;
  PrivateFile& operator=(const PrivateFile&) = delete;

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] bool direct() const { return direct_; }
  [[nodiscard]] const std::string& folder() const { return folder_; }

  // Takes space on the disk for the range, so that a write into it does not run out of space.
  // StorageFull when there is none; what was taken of the range is given back then.
  Status Reserve(uint64_t offset, size_t num_bytes);
  // Gives the space of the range back to the disk. File systems may wait here until the requests
  // that are under way end.
  Status Release(uint64_t offset, size_t num_bytes);
  // The bytes that the file occupies on the disk, as the system counts them.
  [[nodiscard]] size_t DiskBytes() const;

  // The Status of a call that failed with `error`, at `offset`: "cannot WHAT ...: system's words".
  [[nodiscard]] Status Error(const char* what, uint64_t offset, size_t num_bytes, int error) const;

 private:
  PrivateFile() = default;
  Status Open(Buffering buffering);
  // Sets direct_.
  Status Probe();

  int fd_ = -1;
  bool direct_ = false;
  std::string folder_;
  FaultHook faults_;
};

}  // namespace ebb

#endif  // EBB_IO_PRIVATE_FILE_H_
