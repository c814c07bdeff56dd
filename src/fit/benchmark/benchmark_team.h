// Runs measurements on several threads: all run the same function and wait for each other at
// barriers within it.
#ifndef EBB_BENCHMARK_BENCHMARK_TEAM_H_
#define EBB_BENCHMARK_BENCHMARK_TEAM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>

#include "ebb/status.h"

namespace ebb {

// SpinBarrier makes threads wait for each other. A waiting thread spins, as ggml's threads do
// between the nodes of a graph, and later yields, so that it does not keep a core from the thread
// it waits for. std::barrier would not do: it sleeps almost at once, and waking takes longer than
// the work between two barriers of a decode step.
class SpinBarrier {
 public:
  explicit SpinBarrier(int threads) : threads_(threads) {}
  SpinBarrier(const SpinBarrier&) = delete;
  SpinBarrier& operator=(const SpinBarrier&) = delete;

  // Returns once all threads of the team have called it.
  void Wait();

 private:
  const int threads_;
  std::atomic<int> arrived_ = 0;
  std::atomic<uint32_t> phase_ = 0;
};

// Returns `threads`, or if that is 0 AvailableProcessors().threads (ebb/device.h).
[[nodiscard]] int ResolveThreads(int threads);

// Calls `run(thread)` on `threads` threads, of which the caller's is thread 0, and returns when all
// calls have returned. Errors: OutOfMemory if the system cannot start so many threads; `run` was
// not called then.
[[nodiscard]] Status RunTeam(int threads, const std::function<void(int thread)>& run);

// BenchmarkBuffer is memory for a measurement, in huge pages if the system gives them, filled with
// ones.
class BenchmarkBuffer {
 public:
  explicit BenchmarkBuffer(size_t bytes);
  ~BenchmarkBuffer();
  BenchmarkBuffer(const BenchmarkBuffer&) = delete;
  BenchmarkBuffer& operator=(const BenchmarkBuffer&) = delete;

  // Returns null if the system had no memory.
  [[nodiscard]] std::byte* data() const { return data_; }
  [[nodiscard]] size_t size() const { return bytes_; }

 private:
  size_t bytes_;
  std::byte* data_;
};

}  // namespace ebb

#endif  // EBB_BENCHMARK_BENCHMARK_TEAM_H_
