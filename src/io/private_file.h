// PrivateFile is a file that no other process can see: it has no name in its folder, and is deleted
// when the object is destroyed or the process ends in any way. Reads and writes of whole blocks
// (kBlockBytes) bypass the page cache. Some file systems accept O_DIRECT and ignore it; Create()
// therefore reads a block and asks the system whether the page cache holds it.
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

// kBlockBytes is the size of a block: direct requests need offsets, sizes and memory addresses that
// are multiples of it.
inline constexpr size_t kBlockBytes = 4096;

enum class Buffering {
  kDirectOnly,  // refuse a file system without direct I/O
  kAllow,       // use the page cache without direct I/O
};

// Returns $TMPDIR, or /var/tmp if that is not set.
[[nodiscard]] std::string DefaultFolder();

struct PrivateFileOptions {
  std::string folder;  // empty: DefaultFolder()
  Buffering buffering = Buffering::kDirectOnly;
  FaultHook faults;
};

class PrivateFile {
 public:
  // Creates the file. Errors: NotFound (no such folder), Unsupported (no direct I/O, no fallocate),
  // StorageFull (the disk is full), IoError.
  static Result<std::unique_ptr<PrivateFile>> Create(const PrivateFileOptions& options);
  ~PrivateFile();
  PrivateFile(const PrivateFile&) = delete;
  PrivateFile& operator=(const PrivateFile&) = delete;

  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] bool direct() const { return direct_; }
  [[nodiscard]] const std::string& folder() const { return folder_; }

  // Reserves space on the disk for the range, so that a write into it does not run out of space.
  // Errors: StorageFull; space of the range that was already reserved is then released.
  Status Reserve(uint64_t offset, size_t num_bytes);
  // Returns the space of the range to the disk. File systems may wait here until requests in flight
  // end.
  Status Release(uint64_t offset, size_t num_bytes);
  // Returns the bytes that the file occupies on the disk, as the system counts them.
  [[nodiscard]] size_t DiskBytes() const;

  // Returns the Status of a system call that failed with `error` at `offset`: "cannot WHAT ...:
  // system's words".
  [[nodiscard]] Status Error(const char* what, uint64_t offset, size_t num_bytes, int error) const;

 private:
  PrivateFile() = default;
  Status Open(Buffering buffering);
  // Sets direct_ by writing and reading a block and looking for it in the page cache.
  Status Probe();

  int fd_ = -1;
  bool direct_ = false;
  std::string folder_;
  FaultHook faults_;
};

}  // namespace ebb

#endif  // EBB_IO_PRIVATE_FILE_H_
