// Quest (Tang et al., 2024, as in its published code; 003, App. F.1): each decode step, each query
// head reads the pages whose keys could give it the highest logit. For a page of 16 rows
//   bound = sum over channels of max(q_c kmin_c, q_c kmax_c)
// with the lowest and highest key per channel, after RoPE; the top max(3, budget / 16) pages are
// read. Layers 0 and 1 are read in full, prefill is dense, no memory is freed. A kv head reads the
// union of what its query heads choose.
//
// The newest page counts among the chosen ones, as in the published kernels: the key of the token
// at hand is not known when rows are chosen. (The published evaluation ranks it like any other; the
// least of three pages is from there.)
// [ours: lowest and highest keys are kept in f16, the published models' type. Without a budget it
// is 1,024 rows, the code's; a percentage is of the rows so far. page=N is the page size; 003 takes
// max(16, 2 CR). When rows go, the bounds of their page stay as they are, so that they remain
// bounds.]
#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "src/policy/placements.h"
#include "src/policy/score_loops.h"
#include "src/policy/scorers/row_scorer.h"
#include "src/policy/scorers/streams.h"
#include "src/policy/selectors.h"

namespace ebb {
namespace {

constexpr int kDefaultPage = 16;
constexpr int kDefaultBudget = 1024;
constexpr size_t kFewestPages = 3;
constexpr int kDenseLayers = 2;

class QuestSelector final : public Selector {
  // Of one kv head's choice.
  struct Work {
    std::vector<uint8_t> chosen;  // [pages]
    std::vector<float> bounds;    // [queries, pages but the newest]
  };

 public:
  explicit QuestSelector(const SelectorContext& context)
      : shape_(context.shape),
        num_groups_(shape_.NumGroups(context.granularity)),
        streams_(shape_.num_layers * shape_.num_kv_heads / num_groups_),
        budget_(context.budget.unit == Budget::Unit::kNone
                    ? Budget{Budget::Unit::kRows, kDefaultBudget}
                    : context.budget),
        page_(context.params.Int("page", kDefaultPage)),
        page_rows_(num_groups_),
        ranges_(shape_.num_layers * shape_.num_kv_heads),
        work_(shape_.num_kv_heads) {}

  std::string Name() const override {
    return fmt::format("quest:{},page={},keys=f16", BudgetKeyValue(budget_), page_);
  }
  SignalNeeds Needs() const override { return {.keys = true}; }

  void Append(int group, std::span<const Position> positions) override {
    std::vector<uint32_t>& pages = page_rows_[group];
    size_t left = positions.size();
    while (left > 0) {
      if (pages.empty() || pages.back() == static_cast<uint32_t>(page_)) AddPage(group);
      const size_t taken = std::min<size_t>(left, page_ - pages.back());
      pages.back() += static_cast<uint32_t>(taken);
      left -= taken;
    }
  }

  // The step's rows are the last ones.
  void Observe(int group, const GroupSignals&, const StepSignals& step) override {
    const std::vector<uint32_t>& pages = page_rows_[group];
    size_t page = pages.size();
    size_t in_page = 0;
    for (int token = step.num_tokens; token-- > 0; --in_page) {
      while (in_page == 0) in_page = pages[--page];
      for (int s = 0; s < streams_; ++s) {
        const int stream = group * streams_ + s;
        Widen(stream, page, VectorOf(step.keys, shape_, stream, token));
      }
    }
  }

  void Retain(int group, std::span<const uint32_t> kept) override {
    std::vector<uint32_t>& pages = page_rows_[group];
    std::vector<uint32_t> left(pages.size(), 0);
    size_t page = 0;
    uint32_t end = pages.empty() ? 0 : pages[0];
    for (const uint32_t row : kept) {
      while (row >= end) end += pages[++page];
      ++left[page];
    }
    DropEmptyPages(group, std::move(left));
  }

  void Select(int layer, int kv_head, std::span<const float> q,
              std::vector<uint32_t>* rows) override {
    if (layer < kDenseLayers) return;
    const int stream = layer * shape_.num_kv_heads + kv_head;
    const std::vector<uint32_t>& pages = page_rows_[stream / streams_];
    const size_t num_rows = NumRows(stream / streams_);
    const size_t num_chosen = std::max(kFewestPages, RowsAllowed(budget_, num_rows) / page_);
    if (pages.size() <= num_chosen) return;
    std::vector<uint8_t>& chosen = work_[kv_head].chosen;
    chosen.assign(pages.size(), 0);
    chosen.back() = 1;
    std::vector<float>& bounds = work_[kv_head].bounds;
    const size_t num_ranked = pages.size() - 1, dim = shape_.head_dim;
    bounds.resize(q.size() / dim * num_ranked);
    BoundProducts(q, dim, std::span(ranges_[stream]).first(num_ranked * 2 * dim), bounds);
    for (size_t begin = 0; begin < bounds.size(); begin += num_ranked) {
      Choose(std::span(bounds).subspan(begin, num_ranked), num_chosen - 1, chosen);
    }
    uint32_t first = 0;
    for (size_t page = 0; page < pages.size(); first += pages[page++]) {
      if (chosen[page] == 0) continue;
      rows->resize(rows->size() + pages[page]);
      std::iota(rows->end() - pages[page], rows->end(), first);
    }
  }

  size_t NumRows(int group) const override {
    return std::accumulate(page_rows_[group].begin(), page_rows_[group].end(), size_t{0});
  }
  bool ComparesKeys() const override { return true; }

  Status SaveState(StateWriter* to) const override {
    for (const auto& pages : page_rows_) to->Numbers<uint32_t>(pages);
    for (const auto& ranges : ranges_) to->Numbers<uint16_t>(ranges);
    return OkStatus();
  }

  Status LoadState(StateReader* from) override {
    for (auto& pages : page_rows_) {
      pages = from->Numbers<uint32_t>();
      for (const uint32_t of_page : pages) {
        if (of_page < 1 || of_page > static_cast<uint32_t>(page_)) from->Fail("a page of no size");
      }
      MakeRoomToSelect(pages.size());
    }
    for (size_t stream = 0; stream < ranges_.size(); ++stream) {
      ranges_[stream] = from->Numbers<uint16_t>();
      const size_t num_pages = page_rows_[stream / streams_].size();
      if (ranges_[stream].size() != num_pages * PageNumbers()) {
        from->Fail("bounds of another number of pages");
      }
      if (std::ranges::any_of(ranges_[stream], [](uint16_t x) { return (x & 0x7c00) == 0x7c00; })) {
        from->Fail("bounds that are not finite");
      }
    }
    return from->status();
  }

 private:
  // Select() runs where nothing may fail.
  void MakeRoomToSelect(size_t num_pages) {
    for (Work& work : work_) {
      if (work.chosen.capacity() >= num_pages) continue;
      work.bounds.reserve(2 * num_pages * shape_.QueryHeadsPerKvHead());
      work.chosen.reserve(2 * num_pages);  // last: it tells whether there is room
    }
  }

  void AddPage(int group) {
    page_rows_[group].push_back(0);
    MakeRoomToSelect(page_rows_[group].size());
    for (int s = 0; s < streams_; ++s) {
      std::vector<uint16_t>& ranges = ranges_[group * streams_ + s];
      ranges.resize(ranges.size() + PageNumbers());
      BeginRange(std::span(ranges).last(PageNumbers()));
    }
  }

  [[nodiscard]] size_t PageNumbers() const { return 2 * static_cast<size_t>(shape_.head_dim); }

  void Widen(int stream, size_t page, std::span<const float> key) {
    WidenRange(key, std::span(ranges_[stream]).subspan(page * PageNumbers(), PageNumbers()));
  }

  void DropEmptyPages(int group, std::vector<uint32_t> left) {
    const size_t numbers = PageNumbers();
    for (int s = 0; s < streams_; ++s) {
      std::vector<uint16_t>& ranges = ranges_[group * streams_ + s];
      size_t to = 0;
      for (size_t page = 0; page < left.size(); ++page) {
        if (left[page] == 0) continue;
        if (to != page) {
          std::copy_n(ranges.begin() + page * numbers, numbers, ranges.begin() + to * numbers);
        }
        ++to;
      }
      ranges.resize(to * numbers);
    }
    std::erase(left, 0u);
    page_rows_[group] = std::move(left);
  }

  // Of equal bounds the older page is read.
  static void Choose(std::span<const float> bounds, size_t count, std::span<uint8_t> chosen) {
    const float least = HighestReachedBy(bounds, count);
    size_t num_left = count;
    for (size_t page = 0; page < bounds.size(); ++page) {
      const bool is_above = bounds[page] > least;
      chosen[page] |= is_above ? 1 : 0;
      num_left -= is_above ? 1 : 0;
    }
    for (size_t page = 0; num_left > 0; ++page) {
      if (bounds[page] != least) continue;
      chosen[page] = 1;
      --num_left;
    }
  }

  const ModelShape shape_;
  const int num_groups_;
  const int streams_;  // per group
  const Budget budget_;
  const int page_;                                // rows
  std::vector<std::vector<uint32_t>> page_rows_;  // [num_groups][pages], rows that are there
  std::vector<std::vector<uint16_t>> ranges_;     // [streams][pages, 2, head_dim], f16
  std::vector<Work> work_;                        // [kv heads]
};

}  // namespace

std::unique_ptr<Selector> MakeQuestSelector(const SelectorContext& context) {
  return std::make_unique<QuestSelector>(context);
}

}  // namespace ebb
