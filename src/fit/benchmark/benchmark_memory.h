// Measures the bandwidth of reading memory; other measurements are given as a share of it.
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

// Reads `buffer` twice with a team of threads, each of which reads its own part, and returns 10^9
// bytes per second. Every thread of the team calls this function. Adds the sum of the bytes read to
// *sink, so that the compiler keeps the reads.
[[nodiscard]] double ReadBandwidth(std::span<std::byte> buffer, int thread, int threads,
                                   SpinBarrier* barrier, std::atomic<uint64_t>* sink);
[[nodiscard]] std::string MemoryKernelName();

}  // namespace ebb

#endif  // EBB_BENCHMARK_BENCHMARK_MEMORY_H_
