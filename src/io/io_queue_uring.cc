// This queue uses neither a polling thread in the kernel (IORING_SETUP_SQPOLL) nor polled
// completions: both occupy a core, and ebb's compute threads need them all. A thread that waits
// here has nothing to compute, so that it may spin briefly for a request that will end soon.
#include <fmt/format.h>
#include <liburing.h>

#include <algorithm>
#include <array>
#include <cassert>
#include <cerrno>
#include <chrono>
#include <system_error>
#include <thread>
#include <utility>

#include "hwy/cache_control.h"
#include "src/io/io_queue.h"

namespace ebb {
namespace {

class UringQueue final : public IoQueue {
 public:
  UringQueue(int fd, const io_uring& ring) : fd_(fd), ring_(ring) {}
  ~UringQueue() override { io_uring_queue_exit(&ring_); }

  void Start(std::span<const IoRequest> requests) override {
    for (const IoRequest& request : requests) {
      io_uring_sqe* entry = io_uring_get_sqe(&ring_);
      assert(entry != nullptr && "more requests than the queue is deep");
      const auto num_parts = static_cast<unsigned>(request.parts.size());
      if (request.call == DiskCall::kRead) {
        io_uring_prep_readv(entry, fd_, request.parts.data(), num_parts, request.offset);
      } else {
        io_uring_prep_writev(entry, fd_, request.parts.data(), num_parts, request.offset);
      }
      io_uring_sqe_set_data64(entry, request.tag);
      ++num_under_way_;
      // Submit requests one by one: the disk starts on the first while the kernel pins the next
      // one's pages.
      Submit();
    }
  }

  size_t Take(Until until, std::span<IoCompletion> ended) override {
    const auto sleeps_from =
        Clock::now() + (num_under_way_ <= kFew ? kLookOut : Clock::duration(0));
    for (;;) {
      const size_t num_ended = Peek(ended);
      if (num_ended > 0 || until == Until::kNow) {
        if (io_uring_sq_ready(&ring_) > 0) Submit();
        num_under_way_ -= num_ended;
        return num_ended;
      }
      if (io_uring_sq_ready(&ring_) == 0 && Clock::now() < sleeps_from) {
        hwy::Pause();
        continue;
      }
      const int result = io_uring_submit_and_wait(&ring_, 1);
      assert((result >= 0 || IsTransient(result)) && "the ring is broken");
      if (result < 0 && result != -EINTR) std::this_thread::sleep_for(kNap);
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  // kFew is the most requests in flight with which Take() spins, for at most kLookOut, before it
  // sleeps. Waking a virtual machine takes some 50 us, in which its disk is idle. If few requests
  // are in flight, one ends within a millisecond, and the step that waits computes nothing until
  // then.
  static constexpr size_t kFew = 4;
  static constexpr Clock::duration kLookOut = std::chrono::milliseconds(1);

  // kNap is the pause before a retry when the kernel has briefly no memory for requests.
  static constexpr std::chrono::milliseconds kNap{1};

  static bool IsTransient(int result) {
    return result == -EINTR || result == -EAGAIN || result == -EBUSY || result == -ENOMEM;
  }

  // Submits the requests in the ring. If the kernel cannot take some now, they stay in the ring,
  // and Take() submits them again.
  void Submit() {
    while (io_uring_sq_ready(&ring_) > 0) {
      const int result = io_uring_submit(&ring_);
      assert((result >= 0 || IsTransient(result)) && "the ring is broken");
      if (result <= 0 && result != -EINTR) return;
    }
  }

  size_t Peek(std::span<IoCompletion> ended) {
    std::array<io_uring_cqe*, 64> entries;
    const size_t limit = std::min(ended.size(), entries.size());
    const unsigned num =
        io_uring_peek_batch_cqe(&ring_, entries.data(), static_cast<unsigned>(limit));
    for (unsigned i = 0; i < num; ++i) {
      ended[i] = {.tag = static_cast<uint32_t>(io_uring_cqe_get_data64(entries[i])),
                  .result = entries[i]->res};
    }
    io_uring_cq_advance(&ring_, num);
    return num;
  }

  size_t num_under_way_ = 0;
  int fd_;
  io_uring ring_;
};

}  // namespace

Result<std::unique_ptr<IoQueue>> MakeUringQueue(int fd, int depth) {
  io_uring ring = {};
  const int result = io_uring_queue_init(static_cast<unsigned>(depth), &ring, 0);
  if (result < 0) {
    return Unsupported(
        fmt::format("the kernel refuses io_uring: {}", std::generic_category().message(-result)));
  }
  return std::unique_ptr<IoQueue>(std::make_unique<UringQueue>(fd, ring));
}

}  // namespace ebb
