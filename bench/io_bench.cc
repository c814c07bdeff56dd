// Measures reading half of SmolLM2-135M's 8,000 rows from disk (30 layers, 92 MB in pages of 16
// KiB), layer by layer through a staging area of two layers, against raw reads with the same file
// size, request size and queue depth. The first argument chooses the IO engine: 0 io_uring, 1
// threads.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "src/io/benchmark_io.h"
#include "src/io/io_memory.h"
#include "src/io/page_file.h"

namespace ebb {
namespace {

constexpr size_t kPageBytes = 16 << 10;
constexpr int kLayers = 30;
constexpr size_t kPagesPerStream = 63;
constexpr size_t kPagesPerLayer = 3 * kPagesPerStream;
constexpr size_t kLayerBytes = kPagesPerLayer * kPageBytes;

IoEngine EngineOf(int64_t argument) {
  return argument == 0 ? IoEngine::kUring : IoEngine::kThreads;
}

// Staging says how a layer's pages lie in the staging area: in huge or small pages of memory in the
// file's order, or by stream, which is another order than the file's.
enum Staging : int64_t { kHugePages, kSmallPages, kByStream };

struct FileOfLayers {
  std::unique_ptr<PageFile> file;
  std::vector<std::vector<uint32_t>> pages;  // [kLayers][kPagesPerLayer]
  IoMemory memory;                           // two layers
  Staging staging = kHugePages;

  [[nodiscard]] std::vector<PageIo> Requests(int layer) const {
    std::vector<PageIo> requests;
    std::byte* base = memory.data() + (layer % 2) * kLayerBytes;
    for (size_t i = 0; i < kPagesPerLayer; ++i) {
      const size_t place = staging == kByStream ? i % 3 * kPagesPerStream + i / 3 : i;
      requests.push_back({pages[layer][i], base + place * kPageBytes});
    }
    return requests;
  }
};

FileOfLayers MakeFile(IoEngine engine, Staging staging) {
  FileOfLayers made;
  auto file = PageFile::Create({.page_bytes = kPageBytes, .engine = engine});
  if (!file.ok()) std::abort();
  made.file = *std::move(file);
  auto memory = IoMemory::Map(2 * kLayerBytes);
  if (!memory.ok()) std::abort();
  made.memory = *std::move(memory);
  made.staging = staging;
  if (staging == kSmallPages) {
    madvise(made.memory.data(), made.memory.size(), MADV_NOHUGEPAGE);
  }
  made.pages.resize(kLayers);
  for (int layer = 0; layer < kLayers; ++layer) {
    if (!made.file->Allocate(layer, kPagesPerLayer, &made.pages[layer]).ok()) std::abort();
    std::memset(made.memory.data(), 1 + layer, 2 * kLayerBytes);
    const auto ticket = made.file->StartWrite(made.Requests(layer));
    if (!ticket.ok() || !made.file->Wait(*ticket).ok()) std::abort();
  }
  return made;
}

// Reads all layers once; starts to read the next layer before it checks ("computes") the present
// one.
bool ReadAhead(FileOfLayers* layers) {
  auto next = layers->file->StartRead(layers->Requests(0));
  for (int layer = 0; layer < kLayers; ++layer) {
    if (!next.ok()) return false;
    const PageFile::Ticket ticket = *next;
    if (!layers->file->Wait(ticket).ok()) return false;
    if (layer + 1 < kLayers) next = layers->file->StartRead(layers->Requests(layer + 1));
    if (layers->memory.data()[(layer % 2 + 1) * kLayerBytes - 1] != std::byte(1 + layer)) {
      return false;
    }
  }
  return true;
}

// Measures reading layers and raw reads alternately. The second argument is the Staging. The raw
// reads always use the fastest settings. Counters: GB/s of both, the layers' share of the raw
// speed, and CPU time over wall time.
void ReadLayersAgainstRawReads(benchmark::State& state) {
  FileOfLayers layers = MakeFile(EngineOf(state.range(0)), static_cast<Staging>(state.range(1)));
  auto raw = ReadBenchmark::Create(
      {.file_bytes = kLayers * kLayerBytes, .engine = EngineOf(state.range(0)), .queue_depth = 6});
  if (!raw.ok()) std::abort();
  ReadSpeed raw_sum;
  ReadSpeed pages_sum;
  for (auto _ : state) {
    const double cpu_before = ProcessCpuSeconds();
    const auto start = std::chrono::steady_clock::now();
    if (!ReadAhead(&layers)) state.SkipWithError("a read failed");
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    state.SetIterationTime(seconds.count());
    pages_sum.num_bytes += kLayers * kLayerBytes;
    pages_sum.seconds += seconds.count();
    pages_sum.cpu_seconds += ProcessCpuSeconds() - cpu_before;
    const auto speed = (*raw)->Run();
    if (!speed.ok()) {
      state.SkipWithError("a raw read failed");
      break;
    }
    raw_sum.num_bytes += speed->num_bytes;
    raw_sum.seconds += speed->seconds;
    raw_sum.cpu_seconds += speed->cpu_seconds;
  }
  state.counters["pages_GBps"] = pages_sum.GigabytesPerSecond();
  state.counters["raw_GBps"] = raw_sum.GigabytesPerSecond();
  state.counters["share"] = pages_sum.GigabytesPerSecond() / raw_sum.GigabytesPerSecond();
  state.counters["pages_cpu"] = pages_sum.cpu_seconds / pages_sum.seconds;
  state.counters["raw_cpu"] = raw_sum.cpu_seconds / raw_sum.seconds;
}
BENCHMARK(ReadLayersAgainstRawReads)
    ->ArgsProduct({{0, 1}, {kHugePages, kSmallPages, kByStream}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

// Measures raw reads of 92 MB at 1 MiB per request; the second argument is the queue depth, which
// is also the number of threads.
void RawReads(benchmark::State& state) {
  auto raw = ReadBenchmark::Create({.file_bytes = kLayers * kLayerBytes,
                                    .engine = EngineOf(state.range(0)),
                                    .queue_depth = static_cast<int>(state.range(1)),
                                    .num_threads = static_cast<int>(state.range(1))});
  if (!raw.ok()) std::abort();
  ReadSpeed sum;
  for (auto _ : state) {
    const auto speed = (*raw)->Run();
    if (!speed.ok()) {
      state.SkipWithError("a raw read failed");
      break;
    }
    state.SetIterationTime(speed->seconds);
    sum.num_bytes += speed->num_bytes;
    sum.seconds += speed->seconds;
    sum.cpu_seconds += speed->cpu_seconds;
  }
  state.counters["GBps"] = sum.GigabytesPerSecond();
  state.counters["cpu"] = sum.cpu_seconds / sum.seconds;
}
BENCHMARK(RawReads)
    ->ArgsProduct({{0, 1}, {1, 2, 4, 8, 32}})
    ->UseManualTime()
    ->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace ebb
