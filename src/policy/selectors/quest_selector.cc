// Selects pages as Quest does (Tang et al., 2024, as in its published code, and "Inference-Time
// Hyper-Scaling", App. F.1): in each decode step, each query head reads the pages whose keys could
// give it the highest logit. For a page of 16 rows
//   bound = sum over channels of max(q_c kmin_c, q_c kmax_c)
// with the lowest and highest key per channel, after RoPE; the top max(3, budget / 16) pages are
// read. Layers 0 and 1 are read in full, prefill is dense, and no memory is freed. A kv head reads
// the union of the pages that its query heads choose.
//
// The newest page always counts as chosen, like in the published kernels, because the current
// token's key is not known when rows are chosen. (The published evaluation ranks it like any other
// page; the minimum of three pages is from there.) [ours: lowest and highest keys are stored in
// f16, the published models' type. Without a budget it is 1,024 rows, the code's; a percentage is
// of the rows so far. page=N is the page size; "Inference-Time Hyper-Scaling" takes max(16, 2 CR).
// When a page loses rows, its bounds stay as they are, and so remain bounds.]
#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <numeric>

#include "src/policy/placements.h"
#include "src/policy/score_loops.h"
#include "src/policy/scorers/streams.h"
#include "src/policy/selectors.h"
#include "src/policy/selectors/key_ranges.h"
#include "src/policy/selectors/page_index.h"

namespace ebb {
namespace {

constexpr int kDefaultPage = 16;
constexpr int kDefaultBudget = 1024;
constexpr size_t kFewestPages = 3;
constexpr int kDenseLayers = 2;

class QuestSelector final : public Selector {
  // Work is the work space for the choice of one kv head.
  struct Work {
    std::vector<uint8_t> chosen;  // [pages + 1]; behind the newest stands 0
    std::vector<float> bounds;    // room for any layer's
  };

 public:
  explicit QuestSelector(const SelectorContext& context)
      : layout_(context.shape, context.granularity),
        num_groups_(layout_.num_groups()),
        budget_(context.budget.unit == Budget::Unit::kNone
                    ? Budget{Budget::Unit::kRows, kDefaultBudget}
                    : context.budget),
        page_(context.params.Int("page", kDefaultPage)),
        page_rows_(num_groups_),
        num_rows_(num_groups_, 0),
        ranges_(layout_.num_streams(), layout_.head_dim()),
        work_(context.shape.num_kv_heads),
        most_queries_(MostQueries(layout_)) {}

  std::string Name() const override {
    return fmt::format("quest:{},page={},keys=f16", BudgetKeyValue(budget_), page_);
  }
  SignalNeeds Needs() const override { return {.keys = true}; }

  void Append(int group, std::span<const Position> positions) override {
    std::vector<uint32_t>& pages = page_rows_[group];
    num_rows_[group] += positions.size();
    size_t left = positions.size();
    while (left > 0) {
      if (pages.empty() || pages.back() == static_cast<uint32_t>(page_)) AddPage(group);
      const size_t taken = std::min<size_t>(left, page_ - pages.back());
      pages.back() += static_cast<uint32_t>(taken);
      left -= taken;
    }
  }

  // Widens the ranges of pages by the keys of the step, which belong to the newest rows.
  void ObserveGroup(int group, const GroupSignals&, const StepSignals& step) override {
    const std::vector<uint32_t>& pages = page_rows_[group];
    size_t page = pages.size();
    size_t in_page = 0;
    for (int token = step.num_tokens; token-- > 0; --in_page) {
      while (in_page == 0) in_page = pages[--page];
      for (int stream = Begin(group); stream < Begin(group + 1); ++stream) {
        ranges_.Widen(stream, page, VectorOf(step.keys, layout_, stream, token));
      }
    }
  }

  void Retain(int group, std::span<const uint32_t> kept) override {
    std::vector<uint32_t>& pages = page_rows_[group];
    std::vector<uint32_t> left = RowsLeft(pages, kept);
    for (int stream = Begin(group); stream < Begin(group + 1); ++stream) {
      ranges_.Retain(stream, left);
    }
    std::erase(left, 0u);
    pages = std::move(left);
    num_rows_[group] = kept.size();
  }

  void Rank(int layer, int kv_head, std::span<const float> q, int part, int num_parts) override {
    if (NumChosen(layer, kv_head) == 0) return;
    ranges_.Bounds(StreamOf(layer, kv_head), q, part, num_parts, BoundsOf(layer, kv_head));
  }

  void Select(int layer, int kv_head, std::span<const float>,
              std::vector<RowRange>* rows) override {
    const size_t num_chosen = NumChosen(layer, kv_head);
    if (num_chosen == 0) return;
    const std::vector<uint32_t>& pages = PagesOf(layer, kv_head);
    std::vector<uint8_t>& chosen = work_[kv_head].chosen;
    chosen.assign(pages.size() + 1, 0);
    chosen[pages.size() - 1] = 1;
    const std::span<const float> bounds = BoundsOf(layer, kv_head);
    const size_t num_ranked = pages.size() - 1;
    const size_t stride = ranges_.BoundsStride(StreamOf(layer, kv_head));
    for (size_t begin = 0; begin < bounds.size(); begin += stride) {
      // Reads the older of two pages with equal bounds.
      MarkHighest(bounds.subspan(begin, num_ranked), num_chosen - 1,
                  std::span(chosen).first(num_ranked));
    }
    WriteRanges(pages, chosen, rows);
  }

  size_t NumRows(int group) const override { return num_rows_[group]; }
  bool ComparesKeys() const override { return true; }

  Status SaveState(StateWriter* to) const override {
    for (const auto& pages : page_rows_) to->Numbers<uint32_t>(pages);
    for (int stream = 0; stream < layout_.num_streams(); ++stream) {
      to->Numbers<uint16_t>(ranges_.Numbers(stream));
    }
    return OkStatus();
  }

  Status LoadState(StateReader* from) override {
    for (int group = 0; group < num_groups_; ++group) {
      std::vector<uint32_t>& pages = page_rows_[group];
      pages = from->Numbers<uint32_t>();
      num_rows_[group] = std::accumulate(pages.begin(), pages.end(), size_t{0});
      for (const uint32_t of_page : pages) {
        if (of_page < 1 || of_page > static_cast<uint32_t>(page_)) from->Fail("a page of no size");
      }
      MakeRoomToSelect(pages.size());
    }
    for (int stream = 0; stream < layout_.num_streams(); ++stream) {
      const std::vector<uint16_t> numbers = from->Numbers<uint16_t>();
      const size_t num_pages = page_rows_[layout_.GroupOf(stream)].size();
      if (numbers.size() != num_pages * 2 * layout_.head_dim()) {
        from->Fail("bounds of another number of pages");
      } else if (std::ranges::any_of(numbers, [](uint16_t x) { return (x & 0x7c00) == 0x7c00; })) {
        from->Fail("bounds that are not finite");
      } else {
        ranges_.SetNumbers(stream, numbers);
      }
    }
    return from->status();
  }

 private:
  static size_t MostQueries(const AttentionLayout& layout) {
    int most = 0;
    for (int layer = 0; layer < layout.num_layers(); ++layer) {
      most = std::max(most, layout.QueryHeadsPerKvHead(layer));
    }
    return most;
  }
  // Returns the group's first stream; its streams end before Begin(group + 1).
  [[nodiscard]] int Begin(int group) const { return layout_.FirstStreamOf(group); }
  [[nodiscard]] int StreamOf(int layer, int kv_head) const {
    return layout_.StreamOf(layer, kv_head);
  }
  [[nodiscard]] int GroupOf(int layer, int kv_head) const {
    return layout_.GroupOf(StreamOf(layer, kv_head));
  }
  [[nodiscard]] const std::vector<uint32_t>& PagesOf(int layer, int kv_head) const {
    return page_rows_[GroupOf(layer, kv_head)];
  }
  // Returns the work space for the bounds of a kv head's pages, [queries,
  // KeyRanges::BoundsStride()].
  std::span<float> BoundsOf(int layer, int kv_head) {
    const size_t stride = ranges_.BoundsStride(StreamOf(layer, kv_head));
    return std::span(work_[kv_head].bounds).first(layout_.QueryHeadsPerKvHead(layer) * stride);
  }

  // Returns how many pages a query head reads, the newest one included; 0: all.
  [[nodiscard]] size_t NumChosen(int layer, int kv_head) const {
    if (layer < kDenseLayers) return 0;
    const size_t num_rows = NumRows(GroupOf(layer, kv_head));
    const size_t num_chosen = std::max(kFewestPages, RowsAllowed(budget_, num_rows) / page_);
    return num_chosen < PagesOf(layer, kv_head).size() ? num_chosen : 0;
  }

  // Allocates the memory that Rank() and Select() need, because an allocation there must not fail.
  void MakeRoomToSelect(size_t num_pages) {
    const size_t num_bounds = num_pages + KeyRanges::kBlock;
    for (Work& work : work_) {
      if (work.bounds.size() >= num_bounds * most_queries_) continue;
      work.chosen.reserve(2 * num_bounds);
      // `bounds` grows last, because its size says whether there is room.
      work.bounds.resize(2 * num_bounds * most_queries_);
    }
  }

  // Allocates all memory before it changes anything, so that a failure leaves the selector as it
  // was.
  void AddPage(int group) {
    const size_t num_pages = page_rows_[group].size() + 1;
    MakeRoomToSelect(num_pages);
    ranges_.MakeRoom(num_pages);
    page_rows_[group].push_back(0);
    for (int stream = Begin(group); stream < Begin(group + 1); ++stream) ranges_.AddPage(stream);
  }

  const AttentionLayout layout_;
  const int num_groups_;
  const Budget budget_;
  const int page_;                                // rows
  std::vector<std::vector<uint32_t>> page_rows_;  // [num_groups][pages], rows that are there
  std::vector<size_t> num_rows_;                  // [num_groups]: their sums
  KeyRanges ranges_;                              // of each stream
  std::vector<Work> work_;                        // [the most kv heads of any layer]
  const size_t most_queries_;                     // that share a kv head
};

}  // namespace

std::unique_ptr<Selector> MakeQuestSelector(const SelectorContext& context) {
  return std::make_unique<QuestSelector>(context);
}

}  // namespace ebb
