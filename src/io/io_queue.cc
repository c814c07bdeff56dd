#include "src/io/io_queue.h"

#include <fmt/format.h>

#include <system_error>
#include <utility>

namespace ebb {

// Programs that inject faults link tests/support/io, which defines this function; in others it is
// null.
[[gnu::weak]] std::unique_ptr<IoQueue> MakeFaultQueue(std::unique_ptr<IoQueue> queue,
                                                      FaultHook hook);

namespace {

Result<std::unique_ptr<IoQueue>> MakeUring(int fd, const IoQueueOptions& options) {
  if (const int error = FaultError(options.faults, {.call = DiskCall::kQueue}); error != 0) {
    return Unsupported(
        fmt::format("the kernel refuses io_uring: {}", std::generic_category().message(error)));
  }
  return MakeUringQueue(fd, options.depth);
}

}  // namespace

Result<ChosenQueue> MakeIoQueue(int fd, const IoQueueOptions& options) {
  if (options.depth < 1 || options.depth > 1024 || options.num_threads < 1 ||
      options.num_threads > 64) {
    return InvalidArgument(fmt::format(
        "expected 1 to 1024 requests under way and 1 to 64 waiting threads; got {} and {}",
        options.depth, options.num_threads));
  }
  ChosenQueue chosen;
  if (options.engine != IoEngine::kThreads) {
    auto uring = MakeUring(fd, options);
    if (uring.ok()) {
      chosen = {.queue = *std::move(uring), .engine = IoEngine::kUring};
    } else if (options.engine == IoEngine::kUring) {
      return uring.status();
    }
  }
  if (chosen.queue == nullptr) {
    EBB_ASSIGN_OR_RETURN(chosen.queue, MakeThreadQueue(fd, options.depth, options.num_threads));
    chosen.engine = IoEngine::kThreads;
  }
  if (options.faults && MakeFaultQueue == nullptr) {
    return Internal("faults of a queue are asked for, and this program does not link them");
  }
  if (options.faults) chosen.queue = MakeFaultQueue(std::move(chosen.queue), options.faults);
  return chosen;
}

}  // namespace ebb
