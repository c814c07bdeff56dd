#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "src/io/io_queue.h"
#include "src/io/private_file.h"

namespace ebb {
namespace {

using Clock = std::chrono::steady_clock;

size_t BytesOf(std::span<const iovec> parts) {
  size_t num_bytes = 0;
  for (const iovec& part : parts) num_bytes += part.iov_len;
  return num_bytes;
}

std::vector<iovec> FirstBytes(std::span<const iovec> parts, size_t num_bytes) {
  std::vector<iovec> first;
  for (const iovec& part : parts) {
    if (num_bytes == 0) break;
    first.push_back({part.iov_base, std::min(part.iov_len, num_bytes)});
    num_bytes -= first.back().iov_len;
  }
  return first;
}

std::byte* ByteAt(std::span<const iovec> parts, size_t index) {
  for (const iovec& part : parts) {
    if (index < part.iov_len) return static_cast<std::byte*>(part.iov_base) + index;
    index -= part.iov_len;
  }
  return nullptr;
}

class FaultQueue final : public IoQueue {
 public:
  FaultQueue(std::unique_ptr<IoQueue> queue, FaultHook hook)
      : queue_(std::move(queue)), hook_(std::move(hook)) {}

  void Start(std::span<const IoRequest> requests) override {
    for (IoRequest request : requests) {
      const size_t num_bytes = BytesOf(request.parts);
      Sufferer& sufferer = sufferers_[request.tag];
      sufferer = {};
      sufferer.fault =
          hook_({.call = request.call, .offset = request.offset, .num_bytes = num_bytes});
      sufferer.due = Clock::now() + sufferer.fault.delay;
      const DiskFault& fault = sufferer.fault;
      if (fault.error != 0 || fault.max_bytes == 0) {
        ended_.push_back({.tag = request.tag, .result = -fault.error});
        continue;
      }
      // Round the hook's limit up to whole blocks, which direct I/O requires.
      const size_t limit = std::min(fault.max_bytes, num_bytes);
      const size_t blocks_bytes = (limit + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
      sufferer.parts = FirstBytes(request.parts, blocks_bytes);
      request.parts = sufferer.parts;
      ++num_under_way_;
      queue_->Start({&request, 1});
    }
  }

  size_t Take(Until until, std::span<IoCompletion> ended) override {
    for (;;) {
      TakeFromInside(ended_.empty() ? until : Until::kNow);
      const size_t num = TakeDue(ended);
      if (num > 0 || until == Until::kNow) return num;
      Clock::time_point next = Clock::time_point::max();
      for (const IoCompletion& completion : ended_) {
        next = std::min(next, sufferers_[completion.tag].due);
      }
      std::this_thread::sleep_until(next);
    }
  }

 private:
  struct Sufferer {
    DiskFault fault;
    Clock::time_point due;
    std::vector<iovec> parts;
  };

  void TakeFromInside(Until until) {
    if (num_under_way_ == 0) return;
    std::array<IoCompletion, 64> inside;
    const size_t num = queue_->Take(until, inside);
    num_under_way_ -= num;
    for (size_t i = 0; i < num; ++i) {
      IoCompletion completion = inside[i];
      const Sufferer& sufferer = sufferers_[completion.tag];
      const auto max_bytes =
          static_cast<int64_t>(std::min(sufferer.fault.max_bytes, static_cast<size_t>(INT64_MAX)));
      completion.result = std::min(completion.result, max_bytes);
      if (sufferer.fault.flipped_byte.has_value()) {
        std::byte* byte = ByteAt(sufferer.parts, *sufferer.fault.flipped_byte);
        if (byte != nullptr) *byte ^= std::byte{1};
      }
      ended_.push_back(completion);
    }
  }

  size_t TakeDue(std::span<IoCompletion> ended) {
    size_t num = 0;
    const Clock::time_point now = Clock::now();
    std::erase_if(ended_, [&](const IoCompletion& completion) {
      if (num == ended.size() || sufferers_[completion.tag].due > now) return false;
      ended[num++] = completion;
      return true;
    });
    return num;
  }

  std::unique_ptr<IoQueue> queue_;
  FaultHook hook_;
  std::unordered_map<uint32_t, Sufferer> sufferers_;  // by tag
  std::vector<IoCompletion> ended_;                   // not reported yet
  size_t num_under_way_ = 0;                          // in queue_
};

}  // namespace

std::unique_ptr<IoQueue> MakeFaultQueue(std::unique_ptr<IoQueue> queue, FaultHook hook) {
  return std::make_unique<FaultQueue>(std::move(queue), std::move(hook));
}

}  // namespace ebb
