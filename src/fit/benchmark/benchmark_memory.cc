// Measures the bandwidth of memory with a read kernel that is compiled once for each instruction
// set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/fit/benchmark/benchmark_memory.cc"  // NOLINT(build/include)
#include "src/fit/benchmark/benchmark_memory.h"

#include <numeric>

#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

// Reads `bytes` bytes and returns their sum as 64-bit numbers, which costs next to nothing compared
// with the reads. REQUIRES: `from` is aligned to 64 bytes, and `bytes` is a multiple of 64.
uint64_t ReadBytes(const std::byte* from, size_t bytes) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::CappedTag<uint64_t, 8> d;
  const size_t lanes = hn::Lanes(d);
  const auto* data = reinterpret_cast<const uint64_t*>(from);
  auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
  const size_t num = bytes / sizeof(uint64_t);
  size_t i = 0;
  for (; i + 4 * lanes <= num; i += 4 * lanes) {
    sum0 = hn::Add(sum0, hn::Load(d, data + i));
    sum1 = hn::Add(sum1, hn::Load(d, data + i + lanes));
    sum2 = hn::Add(sum2, hn::Load(d, data + i + 2 * lanes));
    sum3 = hn::Add(sum3, hn::Load(d, data + i + 3 * lanes));
  }
  for (; i < num; i += lanes) sum0 = hn::Add(sum0, hn::Load(d, data + i));
  // The intrinsic that sums lanes adds signed numbers, which must not overflow, so the lanes are
  // stored and added one by one.
  HWY_ALIGN uint64_t sums[8];
  hn::Store(hn::Add(hn::Add(sum0, sum1), hn::Add(sum2, sum3)), d, sums);
  return std::accumulate(sums, sums + lanes, uint64_t{0});
}

const char* ReadKernelName() { return hwy::TargetName(HWY_TARGET); }

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <vector>

namespace ebb {
namespace {

HWY_EXPORT(ReadBytes);
HWY_EXPORT(ReadKernelName);

using Clock = std::chrono::steady_clock;

// Returns part `thread` of `threads` parts, each a multiple of 64 bytes.
std::span<std::byte> PartOf(std::span<std::byte> all, int thread, int threads) {
  constexpr size_t kLine = 64;
  const size_t lines = all.size() / kLine;
  const size_t begin = lines * thread / threads * kLine;
  const size_t end = lines * (thread + 1) / threads * kLine;
  return all.subspan(begin, end - begin);
}

// Copies one thread's part of the first half of `all` over the second half.
void CopyHalf(std::span<std::byte> all, int thread, int threads) {
  const std::span<std::byte> from = PartOf(all.first(all.size() / 2), thread, threads);
  std::memcpy(from.data() + all.size() / 2, from.data(), from.size());
}

}  // namespace

double ReadBandwidth(std::span<std::byte> buffer, int thread, int threads, SpinBarrier* barrier,
                     std::atomic<uint64_t>* sink) {
  constexpr int kPasses = 2;
  const std::span<std::byte> part = PartOf(buffer, thread, threads);
  barrier->Wait();
  const Clock::time_point start = Clock::now();
  uint64_t sum = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    sum += HWY_DYNAMIC_DISPATCH(ReadBytes)(part.data(), part.size());
  }
  sink->fetch_add(sum, std::memory_order_relaxed);
  barrier->Wait();
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  return kPasses * static_cast<double>(buffer.size()) / seconds / 1e9;
}

std::string MemoryKernelName() { return HWY_DYNAMIC_DISPATCH(ReadKernelName)(); }

Result<MemoryBenchmark> BenchmarkMemory(const MemoryBenchmarkOptions& options) {
  constexpr int kMaxThreads = 1024;
  constexpr size_t kMinBytes = size_t{1} << 20;
  if (options.threads < 0 || options.threads > kMaxThreads || options.repetitions < 1 ||
      options.bytes < kMinBytes) {
    return InvalidArgument(
        "the memory benchmark needs 0 to 1024 threads, a repetition and at least 1 MiB");
  }
  MemoryBenchmark result = {.threads = ResolveThreads(options.threads),
                            .bytes = options.bytes,
                            .kernel = MemoryKernelName()};
  const BenchmarkBuffer buffer(options.bytes);
  if (buffer.data() == nullptr) {
    return OutOfMemory("no memory for a buffer of " + std::to_string(options.bytes) +
                       " bytes to read");
  }
  const std::span<std::byte> bytes(buffer.data(), buffer.size() / 128 * 128);
  SpinBarrier barrier(result.threads);
  std::atomic<uint64_t> sink = 0;
  std::vector<double> read, copy;
  EBB_RETURN_IF_ERROR(RunTeam(result.threads, [&](int thread) {
    for (int repetition = -1; repetition < options.repetitions; ++repetition) {
      const double gb_s = ReadBandwidth(bytes, thread, result.threads, &barrier, &sink);
      const Clock::time_point start = Clock::now();
      CopyHalf(bytes, thread, result.threads);
      barrier.Wait();
      const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
      if (thread != 0 || repetition < 0) continue;  // the first one warms up
      read.push_back(gb_s);
      copy.push_back(static_cast<double>(bytes.size()) / seconds / 1e9);
    }
  }));
  // Every byte is 1, so the sum proves that the kernel skipped none; skipping would make it look
  // fast.
  const uint64_t expected = 0x0101010101010101u * (bytes.size() / 8) * 2 *
                            (static_cast<uint64_t>(options.repetitions) + 1);
  if (sink.load() != expected) return Internal("the memory benchmark did not read what it says");
  result.read_gb_s = SpreadOf(read);
  result.copy_gb_s = SpreadOf(copy);
  return result;
}

Spread SpreadOf(std::span<const double> values) {
  if (values.empty()) return {};
  std::vector<double> sorted(values.begin(), values.end());
  std::ranges::sort(sorted);
  const size_t middle = sorted.size() / 2;
  const double median =
      sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
  return {.median = median, .min = sorted.front(), .max = sorted.back()};
}

}  // namespace ebb

#endif  // HWY_ONCE
