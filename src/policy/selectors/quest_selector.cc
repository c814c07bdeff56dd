// Quest (Tang et al., 2024, as in its published code; 003, App. F.1): each decode step, each query
// head reads the pages whose keys could give it the highest logit. For a page of 16 rows
//   bound = sum over channels of max(q_c kmin_c, q_c kmax_c)
// with the lowest and highest key per channel, after RoPE; the top max(3, budget / 16) pages are
// read. Layers 0 and 1 are read in full, prefill is dense, no memory is freed. A kv head reads the
// union of what its query heads choose.
//
// [ours: the newest page counts among the chosen ones, since the key of the token at hand is not
// known when rows are chosen. Without a budget it is 1,024 rows, the code's; a percentage is of the
// rows so far. page=N is the page size; 003 takes max(16, 2 CR). When rows go,
// the bounds of their page stay as they are, so that they remain bounds.]
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>

#include "src/policy/placements.h"
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
        bounds_(shape_.num_layers * shape_.num_kv_heads) {}

  std::string Name() const override {
    return fmt::format("quest:{},page={}", BudgetKeyValue(budget_), page_);
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

  void Select(int layer, std::span<const float> q,
              std::span<std::vector<uint32_t>> rows_per_kv_head) override {
    for (int h = 0; h < shape_.num_kv_heads; ++h) rows_per_kv_head[h].clear();
    if (layer < kDenseLayers) return;
    for (int h = 0; h < shape_.num_kv_heads; ++h) {
      const int stream = layer * shape_.num_kv_heads + h;
      SelectRows(stream, q, h, &rows_per_kv_head[h]);
    }
  }

  size_t NumRows(int group) const override {
    return std::accumulate(page_rows_[group].begin(), page_rows_[group].end(), size_t{0});
  }
  bool ComparesKeys() const override { return true; }

  Status SaveState(StateWriter* to) const override {
    for (const auto& pages : page_rows_) to->Numbers<uint32_t>(pages);
    for (const auto& bounds : bounds_) to->Numbers<float>(bounds);
    return OkStatus();
  }

  Status LoadState(StateReader* from) override {
    for (auto& pages : page_rows_) {
      pages = from->Numbers<uint32_t>();
      for (const uint32_t of_page : pages) {
        if (of_page < 1 || of_page > static_cast<uint32_t>(page_)) from->Fail("a page of no size");
      }
    }
    for (size_t stream = 0; stream < bounds_.size(); ++stream) {
      bounds_[stream] = from->Numbers<float>();
      const size_t num_pages = page_rows_[stream / streams_].size();
      if (bounds_[stream].size() != num_pages * 2 * shape_.head_dim) {
        from->Fail("bounds of another number of pages");
      }
    }
    return from->status();
  }

 private:
  void AddPage(int group) {
    page_rows_[group].push_back(0);
    // Select() runs where nothing may fail.
    const size_t num_pages = page_rows_[group].size();
    if (order_.capacity() < num_pages) order_.reserve(2 * num_pages);
    if (chosen_.capacity() < num_pages) chosen_.reserve(2 * num_pages);
    const auto dim = static_cast<size_t>(shape_.head_dim);
    for (int s = 0; s < streams_; ++s) {
      std::vector<float>& bounds = bounds_[group * streams_ + s];
      bounds.insert(bounds.end(), dim, std::numeric_limits<float>::max());
      bounds.insert(bounds.end(), dim, std::numeric_limits<float>::lowest());
    }
  }

  void Widen(int stream, size_t page, std::span<const float> key) {
    float* low = bounds_[stream].data() + page * 2 * key.size();
    float* high = low + key.size();
    for (size_t c = 0; c < key.size(); ++c) {
      low[c] = std::min(low[c], FiniteOr0(key[c]));
      high[c] = std::max(high[c], FiniteOr0(key[c]));
    }
  }

  void DropEmptyPages(int group, std::vector<uint32_t> left) {
    const size_t floats = 2 * static_cast<size_t>(shape_.head_dim);
    for (int s = 0; s < streams_; ++s) {
      std::vector<float>& bounds = bounds_[group * streams_ + s];
      size_t to = 0;
      for (size_t page = 0; page < left.size(); ++page) {
        if (left[page] == 0) continue;
        if (to != page) {
          std::copy_n(bounds.begin() + page * floats, floats, bounds.begin() + to * floats);
        }
        ++to;
      }
      bounds.resize(to * floats);
    }
    std::erase(left, 0u);
    page_rows_[group] = std::move(left);
  }

  void SelectRows(int stream, std::span<const float> q, int kv_head, std::vector<uint32_t>* rows) {
    const std::vector<uint32_t>& pages = page_rows_[stream / streams_];
    const size_t num_rows = NumRows(stream / streams_);
    const size_t num_chosen = std::max(kFewestPages, RowsAllowed(budget_, num_rows) / page_);
    if (pages.size() <= num_chosen) return;
    chosen_.assign(pages.size(), 0);
    chosen_.back() = 1;
    const int per_kv = shape_.QueryHeadsPerKvHead();
    for (int head = kv_head * per_kv; head < (kv_head + 1) * per_kv; ++head) {
      ChoosePages(stream, q.subspan(size_t(head) * shape_.head_dim, shape_.head_dim),
                  num_chosen - 1);
    }
    uint32_t begin = 0;
    for (size_t page = 0; page < pages.size(); ++page) {
      for (uint32_t i = 0; i < pages[page] && chosen_[page] != 0; ++i) rows->push_back(begin + i);
      begin += pages[page];
    }
  }

  // Of all pages but the newest. Of equal bounds the older page is read.
  void ChoosePages(int stream, std::span<const float> q, size_t count) {
    const size_t num_pages = chosen_.size() - 1;
    order_.resize(num_pages);
    for (size_t page = 0; page < num_pages; ++page) {
      const float* low = bounds_[stream].data() + page * 2 * q.size();
      const float* high = low + q.size();
      float lanes[kLanes] = {};
      size_t c = 0;
      for (; c + kLanes <= q.size(); c += kLanes) {
        for (size_t lane = 0; lane < kLanes; ++lane) {
          const float x = q[c + lane];
          lanes[lane] += std::max(x * low[c + lane], x * high[c + lane]);
        }
      }
      for (; c < q.size(); ++c) lanes[0] += std::max(q[c] * low[c], q[c] * high[c]);
      float bound = 0;
      for (const float lane : lanes) bound += lane;
      order_[page] = {-FiniteOr0(bound), static_cast<uint32_t>(page)};
    }
    std::nth_element(order_.begin(), order_.begin() + static_cast<ptrdiff_t>(count) - 1,
                     order_.end());
    for (size_t i = 0; i < count; ++i) chosen_[order_[i].second] = 1;
  }

  static constexpr size_t kLanes = 8;

  const ModelShape shape_;
  const int num_groups_;
  const int streams_;  // per group
  const Budget budget_;
  const int page_;                                // rows
  std::vector<std::vector<uint32_t>> page_rows_;  // [num_groups][pages], rows that are there
  std::vector<std::vector<float>> bounds_;        // [streams][pages, 2, head_dim]: lowest, highest
  std::vector<uint8_t> chosen_;                   // [pages]
  std::vector<std::pair<float, uint32_t>> order_;
};

}  // namespace

std::unique_ptr<Selector> MakeQuestSelector(const SelectorContext& context) {
  return std::make_unique<QuestSelector>(context);
}

}  // namespace ebb
