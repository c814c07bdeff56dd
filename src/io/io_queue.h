// IoQueue runs requests to read and write one file, many of them in flight at once. Start() hands
// requests to the system (or to threads that wait for it). Take() sleeps until a request ends; if
// few are in flight, it may spin for a millisecond first.
//
// Thread safety: one caller at a time. The kernel may report the end of a request only while the
// thread that started it runs.
#ifndef EBB_IO_IO_QUEUE_H_
#define EBB_IO_IO_QUEUE_H_

#include <sys/uio.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "ebb/status.h"
#include "src/io/disk_faults.h"

namespace ebb {

struct IoRequest {
  DiskCall call = DiskCall::kRead;  // kRead or kWrite
  uint64_t offset = 0;
  std::span<const iovec> parts;  // must not change before the end; at most 1024
  uint32_t tag = 0;              // identifies the request to the caller
};

struct IoCompletion {
  uint32_t tag = 0;
  int64_t result = 0;  // bytes transferred, maybe too few; or a negated errno
};

class IoQueue {
 public:
  enum class Until {
    kNow,  // do not sleep; take requests that have ended
    kOne,  // sleep until a request ends; REQUIRES: one is in flight
  };

  IoQueue() = default;
  // REQUIRES: no request is in flight.
  virtual ~IoQueue() = default;
  IoQueue(const IoQueue&) = delete;
  IoQueue& operator=(const IoQueue&) = delete;

  // Starts requests. REQUIRES: no more requests are in flight than the queue's depth.
  virtual void Start(std::span<const IoRequest> requests) = 0;
  // Takes requests that ended, in any order: fills `ended` and returns their number.
  virtual size_t Take(Until until, std::span<IoCompletion> ended) = 0;
};

// Makes a queue of io_uring. Errors: Unsupported if the kernel has none or forbids it.
[[nodiscard]] Result<std::unique_ptr<IoQueue>> MakeUringQueue(int fd, int depth);
// Makes a queue of threads that wait in preadv and pwritev. No more requests than threads reach the
// disk at once.
[[nodiscard]] Result<std::unique_ptr<IoQueue>> MakeThreadQueue(int fd, int depth, int num_threads);
// Makes a queue that injects the hook's faults into the requests of `queue`.
[[nodiscard]] std::unique_ptr<IoQueue> MakeFaultQueue(std::unique_ptr<IoQueue> queue,
                                                      FaultHook hook);

enum class IoEngine {
  kAuto,  // io_uring if the kernel allows it, else threads
  kUring,
  kThreads,
};

struct IoQueueOptions {
  IoEngine engine = IoEngine::kAuto;
  int depth = 32;       // the most requests in flight
  int num_threads = 4;  // used by kThreads
  FaultHook faults;
};

struct ChosenQueue {
  std::unique_ptr<IoQueue> queue;
  IoEngine engine = IoEngine::kThreads;  // the one in use; never kAuto
};

[[nodiscard]] Result<ChosenQueue> MakeIoQueue(int fd, const IoQueueOptions& options);

}  // namespace ebb

#endif  // EBB_IO_IO_QUEUE_H_
