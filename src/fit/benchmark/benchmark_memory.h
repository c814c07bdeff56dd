// The read bandwidth of the memory, for measurements that are given as a share of it.
#ifndef EBB_BENCHMARK_BENCHMARK_MEMORY_H_
#define EBB_BENCHMARK_BENCHMARK_MEMORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "ebb/benchmark.h"
#include "src/fit/benchmark/benchmark_team.h"

namespace ebb {

// Called by every thread of a team: they read `buffer` together, twice, each its own part. Returns
// 10^9 bytes a second. Adds the sum of what was read to *sink.
[[nodiscard]] double ReadBandwidth(std::span<std::byte> buffer, int thread, int threads,
                                   SpinBarrier* barrier, std::atomic<uint64_t>* sink);
[[nodiscard]] std::string MemoryKernelName();

}  // namespace ebb

#endif  // EBB_BENCHMARK_BENCHMARK_MEMORY_H_
