// Measures attention of several tokens of one sequence in one step, as a verifying step has them:
// "folded" together with the bits that each token has alone, or as a tile with other bits. Three kv
// heads have 65,536 rows each, 50 MB, more than a processor's cache holds; one thread runs. The
// counter `row` is the time that a row of a kv head takes for all tokens.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "hwy/aligned_allocator.h"
#include "src/attention/attention.h"
#include "src/attention/decode.h"
#include "src/attention/prefill.h"

namespace ebb {
namespace {

constexpr int kDim = 64;
constexpr int kKvHeads = 3;
constexpr size_t kRows = 65536;

// Step holds a cache of kRows rows and the queries of several tokens at its end.
class Step {
 public:
  Step(int num_tokens, int heads_per_kv)
      : num_tokens_(num_tokens),
        shape_{.num_q_heads = kKvHeads * heads_per_kv,
               .num_kv_heads = kKvHeads,
               .scale = 0.125f,
               .format = {.type = RowType::kF16, .head_dim = kDim}},
        slots_(kRows),
        positions_(kRows),
        q_(size_t(num_tokens) * shape_.num_q_heads * kDim),
        out_(q_.size()) {
    std::iota(slots_.begin(), slots_.end(), Slot());
    std::iota(positions_.begin(), positions_.end(), 0);
    for (size_t i = 0; i < q_.size(); ++i) q_[i] = std::sin(static_cast<float>(i));
    const size_t page_bytes = shape_.format.PageBytes();
    const size_t pages = kRows / kRowsPerPage;
    memory_ = hwy::AllocateAligned<std::byte>(kKvHeads * pages * page_bytes);
    FillPage(memory_.get());
    for (size_t page = 0; page < kKvHeads * pages; ++page) {
      std::byte* const at = memory_.get() + page * page_bytes;
      if (page > 0) std::memcpy(at, memory_.get(), page_bytes);
      pages_.push_back(at);
    }
    for (int token = 0; token < num_tokens; ++token) AddViews(kRows - (num_tokens - 1 - token));
  }

  void Fold(benchmark::State* state) {
    DecodeAttention attention(CpuAttention(), shape_);
    attention.Reserve(num_tokens_, kRows, 1);
    const size_t floats = size_t(shape_.num_q_heads) * kDim;
    std::vector<DecodeQuery> queries(num_tokens_);
    for (int token = 0; token < num_tokens_; ++token) {
      queries[token].rows = std::span(views_).subspan(size_t(token) * kKvHeads, kKvHeads);
      queries[token].q = q_.data() + token * floats;
      queries[token].out = out_.data() + token * floats;
    }
    for (auto _ : *state) {
      attention.Plan(queries);
      attention.Fold(0, 1);
      attention.Merge(0, 1);
    }
  }
  void Tile(benchmark::State* state) {
    PrefillAttention attention(CpuAttention(), shape_);
    attention.Reserve(kKvHeads, num_tokens_, kRows, 1);
    const PrefillQueries queries = {.rows = std::span(views_).last(kKvHeads),
                                    .positions = std::span(positions_).last(num_tokens_),
                                    .q = q_.data(),
                                    .out = out_.data(),
                                    .mass = {}};
    for (auto _ : *state) {
      attention.Plan(queries);
      attention.Run(0);
    }
  }

 private:
  void FillPage(std::byte* page) const {
    std::vector<float> row(kDim);
    for (int r = 0; r < 2 * kRowsPerPage; ++r) {  // keys, then values
      for (int i = 0; i < kDim; ++i) row[i] = std::cos(static_cast<float>(r * kDim + i));
      CpuAttention().store_row(RowType::kF16, row.data(), page + r * shape_.format.RowStride(),
                               kDim);
    }
  }
  void AddViews(size_t num_rows) {
    for (int h = 0; h < kKvHeads; ++h) {
      views_.push_back({.pages = pages_.data() + h * (kRows / kRowsPerPage),
                        .slots = std::span(slots_).first(num_rows),
                        .positions = std::span(positions_).first(num_rows),
                        .last_visible = {}});
    }
  }

  const int num_tokens_;
  const AttentionShape shape_;
  hwy::AlignedFreeUniquePtr<std::byte[]> memory_;
  std::vector<const std::byte*> pages_;
  std::vector<Slot> slots_;
  std::vector<Position> positions_;
  std::vector<RowsView> views_;  // [tokens, kv heads]
  std::vector<float> q_, out_;   // [tokens, q heads, head_dim]
};

void Report(benchmark::State* state) {
  state->counters["row"] = benchmark::Counter(
      static_cast<double>(kKvHeads * kRows),
      benchmark::Counter::kIsIterationInvariantRate | benchmark::Counter::kInvert);
}

// Measures DecodeAttention; the arguments are the number of tokens and of query heads per kv head.
void FoldedTokens(benchmark::State& state) {
  Step(static_cast<int>(state.range(0)), static_cast<int>(state.range(1))).Fold(&state);
  Report(&state);
}
void TileOfTokens(benchmark::State& state) {
  Step(static_cast<int>(state.range(0)), static_cast<int>(state.range(1))).Tile(&state);
  Report(&state);
}
const std::vector<int64_t> kTokens = {1, 2, 4, 8, 12, 16, 24, 32, 64};
BENCHMARK(FoldedTokens)->ArgsProduct({kTokens, {1, 3, 7}});
BENCHMARK(TileOfTokens)->ArgsProduct({kTokens, {1, 3, 7}});

}  // namespace
}  // namespace ebb
