// Injects faults of the disk for tests, by a hook that is called before every system call and
// returns the call's fault. Short reads are continued and interrupted calls repeated, so the hook
// is called again for the rest.
#ifndef EBB_IO_DISK_FAULTS_H_
#define EBB_IO_DISK_FAULTS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>

namespace ebb {

enum class DiskCall {
  kOpen,     // of a file without a name; then, where that is refused, of one unlinked at once
  kProbe,    // whether reads and writes go past the page cache
  kQueue,    // the set-up of io_uring
  kReserve,  // of space on the disk
  kRelease,  // of space on the disk
  kRead,
  kWrite,
  kSync,    // of a file, then of its folder, to the disk
  kRename,  // of a file over the one that it replaces
};

struct DiskRequest {
  DiskCall call = DiskCall::kRead;
  uint64_t offset = 0;
  size_t num_bytes = 0;
};

struct DiskFault {
  int error = 0;  // an errno; the call is not made
  // max_bytes and the members below apply to reads and writes only.
  size_t max_bytes = SIZE_MAX;         // a longer transfer reports so many bytes; 0: end of file
  std::chrono::microseconds delay{0};  // before the end of the request is reported
  std::optional<size_t> flipped_byte;  // of the bytes read
};

// FaultHook returns the fault of a request; an empty hook means no faults. It is called on the
// thread that starts requests.
using FaultHook = std::function<DiskFault(const DiskRequest&)>;

// Returns the hook's errno for a call that has no other result; 0: the call is to be made.
[[nodiscard]] inline int FaultError(const FaultHook& hook, const DiskRequest& request) {
  return hook ? hook(request).error : 0;
}

}  // namespace ebb

#endif  // EBB_IO_DISK_FAULTS_H_
