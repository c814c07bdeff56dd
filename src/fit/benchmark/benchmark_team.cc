#include "src/fit/benchmark/benchmark_team.h"

#include <sys/mman.h>

#include <cstring>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "ebb/device.h"

namespace ebb {

void SpinBarrier::Wait() {
  const uint32_t phase = phase_.load(std::memory_order_acquire);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    return;
  }
  constexpr int kSpinsBeforeYield = 20000;
  for (int spins = 0; phase_.load(std::memory_order_acquire) == phase;) {
    if (++spins > kSpinsBeforeYield) std::this_thread::yield();
  }
}

int ResolveThreads(int threads) { return threads > 0 ? threads : AvailableProcessors().threads; }

Status RunTeam(int threads, const std::function<void(int thread)>& run) {
  enum { kWaiting, kGo, kGiveUp };
  std::atomic<int> state = kWaiting;
  const auto set_state = [&](int to) {
    state.store(to);
    state.notify_all();
  };
  std::vector<std::jthread> others;
  try {
    for (int thread = 1; thread < threads; ++thread) {
      others.emplace_back([&, thread] {
        state.wait(kWaiting);
        if (state.load() == kGo) run(thread);
      });
    }
  } catch (const std::system_error& error) {
    set_state(kGiveUp);
    return OutOfMemory("cannot start " + std::to_string(threads) + " threads: " + error.what());
  }
  set_state(kGo);
  run(0);
  return OkStatus();
}

BenchmarkBuffer::BenchmarkBuffer(size_t bytes) : bytes_(bytes) {
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  data_ = mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
  if (data_ == nullptr) return;
  madvise(data_, bytes, MADV_HUGEPAGE);
  // Every page must be written, since the system maps all pages that were never written to one page
  // of zeros, which would be read from the cache.
  std::memset(data_, 1, bytes);
}

BenchmarkBuffer::~BenchmarkBuffer() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace ebb
