// Threads that measure something together: all of them run the same function, and meet at barriers
// inside it.
#ifndef EBB_BENCHMARK_BENCHMARK_TEAM_H_
#define EBB_BENCHMARK_BENCHMARK_TEAM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "ebb/status.h"

namespace ebb {

// Spins, as ggml's threads do between the nodes of a graph, then yields: a waiting thread must not
// keep a core from the one it waits for. std::barrier sleeps almost at once, and waking takes
// longer than the work between two barriers of a decode step.
class SpinBarrier {
 public:
  explicit SpinBarrier(int threads) : threads_(threads) {}
  SpinBarrier(const SpinBarrier&) = delete;
  SpinBarrier& operator=(const SpinBarrier&) = delete;

  void Wait();

 private:
  const int threads_;
  std::atomic<int> arrived_ = 0;
  std::atomic<uint32_t> phase_ = 0;
};

// 0: as many as there is room for (ebb/device.h).
[[nodiscard]] int ResolveThreads(int threads);

// Runs `run(thread)` on `threads` threads, the caller's one being thread 0; returns when all have.
// OutOfMemory, and nothing was run, when the system has no more threads.
[[nodiscard]] Status RunTeam(int threads, const std::function<void(int thread)>& run);

// Memory of its own for a measurement, in huge pages where the system gives them.
class BenchmarkBuffer {
 public:
  explicit BenchmarkBuffer(size_t bytes);
  ~BenchmarkBuffer();
  BenchmarkBuffer(const BenchmarkBuffer&) = delete;
  BenchmarkBuffer& operator=(const BenchmarkBuffer&) = delete;

  // Null when the system had no memory.
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return bytes_; }

 private:
  size_t bytes_;
  std::byte* data_;
};

}  // namespace ebb

#endif  // EBB_BENCHMARK_BENCHMARK_TEAM_H_
