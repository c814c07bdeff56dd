// FaultHook injects disk faults in tests: it is called before every system call, and returns the
// fault that the call should have. Short reads are continued and interrupted calls repeated, so
// that the hook is called again for the rest.
#ifndef EBB_IO_DISK_FAULTS_H_
#define EBB_IO_DISK_FAULTS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

namespace ebb {

enum class DiskCall {
  kOpen,     // open a file without a name, or one unlinked at once
  kProbe,    // check that reads and writes bypass the page cache
  kQueue,    // set up io_uring
  kReserve,  // allocate space on the disk
  kRelease,  // free space on the disk
  kRead,
  kWrite,
  kSync,    // sync a file or its folder
  kRename,  // rename a file over the one that it replaces
};

struct DiskRequest {
  DiskCall call = DiskCall::kRead;
  uint64_t offset = 0;
  size_t num_bytes = 0;
};

struct DiskFault {
  int error = 0;  // an errno, with which the call fails; 0: it is made
  // max_bytes and the members below apply to reads and writes only.
  size_t max_bytes = SIZE_MAX;         // the most bytes to transfer; 0: end of file
  std::chrono::microseconds delay{0};  // before the request ends
  std::optional<size_t> flipped_byte;  // index of a read byte to corrupt
};

// FaultHook returns the fault of a request; an empty hook means no faults. It is called on the
// thread that starts requests.
using FaultHook = std::function<DiskFault(const DiskRequest&)>;

// Returns the errno with which a call without other results should fail; 0: it should be made.
[[nodiscard]] inline int FaultError(const FaultHook& hook, const DiskRequest& request) {
  return hook ? hook(request).error : 0;
}

}  // namespace ebb

#endif  // EBB_IO_DISK_FAULTS_H_
