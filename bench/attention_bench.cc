// Measures attention to one cached row ("folding" a row into the softmax sums) by the three query
// heads of a kv head of SmolLM2-135M: rows in full precision and compressed, from the second-level
// cache and from memory, by one thread and by two at once.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "src/attention/attention.h"
#include "src/attention/compressed.h"

namespace ebb {
namespace {

constexpr int kDim = 64;
constexpr int kHeads = 3;
constexpr int kCachedRows = 2048;        // 512 KiB in f16
constexpr int kMemoryRows = 600 * 1024;  // 54 MiB in int4, more than any cache of this size

enum Format : int { kF16, kInt8, kInt4 };
constexpr const char* kNames[] = {"f16", "int8", "int4"};

// Rows holds the rows of one kv head, in slots in the order of their positions, and the buffers
// that the kernel writes.
class Rows {
 public:
  Rows(Format format, size_t num_rows) : format_(format), slots_(num_rows) {
    compressed_.type = format == kInt4 ? CompressedType::kInt4 : CompressedType::kInt8;
    const size_t page_bytes = format == kF16 ? full_.PageBytes() : compressed_.PageBytes();
    const size_t num_pages = num_rows / kRowsPerPage;
    memory_ = hwy::AllocateAligned<std::byte>(num_pages * page_bytes);
    for (size_t page = 0; page < num_pages; ++page) {
      pages_.push_back(memory_.get() + page * page_bytes);
    }
    std::iota(slots_.begin(), slots_.end(), Slot());
    for (size_t i = 0; i < q_.size(); ++i) q_[i] = std::sin(static_cast<float>(i));
    for (size_t page = 0; page < num_pages; ++page) {
      if (page == 0) {
        FillFirstPage();
      } else {
        std::memcpy(memory_.get() + page * page_bytes, memory_.get(), page_bytes);
      }
    }
  }

  // Runs the kernel over every row once, chunk by chunk.
  void Fold(const AttentionKernel& kernel) {
    const auto num_rows = static_cast<uint32_t>(slots_.size());
    const std::byte* rows[2][kChunkRows];
    Locate(0, rows[0]);
    for (uint32_t begin = 0; begin < num_rows; begin += kChunkRows) {
      const uint32_t chunk = begin / kChunkRows;
      if (begin + kChunkRows < num_rows) Locate(begin + kChunkRows, rows[(chunk + 1) % 2]);
      FoldChunk(kernel, rows[chunk % 2], rows[(chunk + 1) % 2]);
    }
  }
  // Returns a logit of the first chunk. All formats hold the same rows, so their logits must be
  // close.
  [[nodiscard]] float Logit(const AttentionKernel& kernel) {
    const std::byte* rows[kChunkRows];
    Locate(0, rows);
    FoldChunk(kernel, rows, rows);
    return m_[1];
  }

 private:
  void FillFirstPage() {
    std::vector<float> key(kDim), value(kDim);
    for (int r = 0; r < kRowsPerPage; ++r) {
      for (int i = 0; i < kDim; ++i) {
        key[i] = std::cos(static_cast<float>(r * kDim + i));
        value[i] = std::sin(static_cast<float>(2 * r * kDim + i));
      }
      if (format_ == kF16) {
        std::byte* row = memory_.get() + r * full_.RowStride();
        CpuAttention().store_row(full_.type, key.data(), row, kDim);
        CpuAttention().store_row(full_.type, value.data(), row + full_.ValueOffset(), kDim);
      } else {
        CompressRow(compressed_, {}, key.data(), value.data(),
                    memory_.get() + r * compressed_.RowStride());
      }
    }
    for (int g = 0; g < kHeads; ++g) {
      std::vector<float> q(q_.begin() + g * kDim, q_.begin() + (g + 1) * kDim);
      Rotate(q.data(), kDim);
      RoundQuery(compressed_.type, q.data(), kDim, &rounded_[g]);
    }
  }

  void Locate(uint32_t begin, std::span<const std::byte*, kChunkRows> rows) const {
    if (format_ == kF16) {
      LocateKeys({.pages = pages_.data(), .slots = slots_}, full_, begin, begin + kChunkRows, rows);
    } else {
      LocateCompressed({.pages = pages_.data(), .slots = slots_}, compressed_, begin,
                       begin + kChunkRows, rows);
    }
  }

  void FoldChunk(const AttentionKernel& kernel, const std::byte* const* rows,
                 const std::byte* const* next_rows) {
    const FoldOutput out = {
        .m = m_, .l = l_, .head_stride = 1, .o = o_.get(), .p = p_.get(), .p_stride = kChunkRows};
    if (format_ == kF16) {
      kernel.fold({.format = full_,
                   .keys = rows,
                   .num_rows = kChunkRows,
                   .next_keys = next_rows,
                   .q = q_.data(),
                   .num_heads = kHeads,
                   .scale = 0.125f},
                  out);
    } else {
      kernel.fold_compressed({.format = compressed_,
                              .rows = rows,
                              .num_rows = kChunkRows,
                              .next_rows = next_rows,
                              .queries = rounded_,
                              .num_heads = kHeads,
                              .scale = 0.125f},
                             out);
    }
  }

  const PageFormat full_ = {.type = RowType::kF16, .head_dim = kDim};
  CompressedFormat compressed_ = {.head_dim = kDim};
  const Format format_;
  hwy::AlignedFreeUniquePtr<std::byte[]> memory_;
  std::vector<const std::byte*> pages_;
  std::vector<Slot> slots_;
  std::vector<float> q_ = std::vector<float>(kHeads * kDim);
  RoundedQuery rounded_[kHeads];
  float m_[kHeads], l_[kHeads];
  hwy::AlignedFreeUniquePtr<float[]> o_ = hwy::AllocateAligned<float>(kHeads * kDim);
  hwy::AlignedFreeUniquePtr<float[]> p_ = hwy::AllocateAligned<float>(kHeads * kChunkRows);
};

void FoldRows(benchmark::State& state) {
  const auto format = static_cast<Format>(state.range(0));
  const int64_t num_rows = state.range(1);
  const AttentionKernel& kernel = AllAttentionKernels()[state.range(2)];
  Rows rows(format, num_rows);
  if (std::fabs(rows.Logit(kernel) - Rows(kF16, kChunkRows).Logit(kernel)) > 0.05f) {
    state.SkipWithError("the logits differ from those in f16");
  }
  for (auto _ : state) rows.Fold(kernel);
  // The counter is the time per row of all threads together, so it shows what two threads that
  // share the memory gain over one.
  state.counters["row"] =
      benchmark::Counter(static_cast<double>(num_rows),
                         benchmark::Counter::kIsIterationInvariantRate |
                             benchmark::Counter::kInvert | benchmark::Counter::kAvgThreads);
  state.SetLabel(std::string(kNames[format]) + (num_rows == kCachedRows ? ", cache" : ", memory") +
                 ", " + std::string(kernel.name));
}

// Measures every kernel but the reference from the cache, and the fastest one from memory.
void Settings(benchmark::internal::Benchmark* benchmark) {
  const auto num_kernels = static_cast<int64_t>(AllAttentionKernels().size()) - 1;
  for (int64_t kernel = 0; kernel < num_kernels; ++kernel) {
    for (const int format : {kF16, kInt8, kInt4}) benchmark->Args({format, kCachedRows, kernel});
  }
  for (const int format : {kF16, kInt8, kInt4}) benchmark->Args({format, kMemoryRows, 0});
}
BENCHMARK(FoldRows)->Apply(Settings)->Threads(1)->Threads(2)->UseRealTime();

}  // namespace
}  // namespace ebb
