// Joins two placements: a retention, which decides which rows leave, and a layout, which places the
// rows that stay in tiers. At each decision the retention evicts first; the layout then sees the
// group as if the evicted rows were not there. So the layout's tiers, and its number format of T2,
// decide about every row that the retention keeps, and neither knows of the other.
//
// The retention decides only after steps, never while rows move between steps, because the evicted
// rows must not depend on when memory is short.
//
// The layout keeps rows out of T2 that the retention may still hide within a step
// (Placement::DecidedAfter(); MakePolicy() passes it on).
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "src/policy/placements.h"

namespace ebb {
namespace {

class StackedPlacement final : public Placement {
 public:
  StackedPlacement(std::unique_ptr<Placement> retention, std::unique_ptr<Placement> layout,
                   bool has_caps)
      : retention_(std::move(retention)), layout_(std::move(layout)), has_caps_(has_caps) {}

  std::string Name() const override {
    return fmt::format("{} in {}", retention_->Name(), layout_->Name());
  }
  bool NeedsScores() const override { return retention_->NeedsScores() || layout_->NeedsScores(); }

  Status Check(const PlacementInput& input) const override {
    EBB_RETURN_IF_ERROR(retention_->Check(input));
    if (!has_caps_) return OkStatus();
    if (input.positions.empty()) return layout_->Check(input);
    Rows left;
    PlacementInput counted = input;
    // Without scores the oldest rows count as evicted; the layout's check counts rows alone.
    std::vector<float> ages;
    if (input.scores.empty() && retention_->NeedsScores()) {
      ages.assign(input.positions.begin(), input.positions.end());
      counted.scores = ages;
    }
    std::vector<Move> gone;
    Evict(counted, &gone);
    return layout_->Check(Without(gone, counted, &left));
  }

  bool Due(const PlacementInput& input, size_t num_rows) const override {
    return RetentionIsDue(input, num_rows) || layout_->Due(input, num_rows);
  }

  void Place(const PlacementInput& input, std::vector<Move>* moves) override {
    gone_.clear();
    Evict(input, &gone_);
    const size_t num_left = input.positions.size() - gone_.size();
    if (input.new_tokens > 0 && !layout_->Due(input, num_left)) {
      moves->insert(moves->end(), gone_.begin(), gone_.end());
      return;
    }
    if (gone_.empty()) return layout_->Place(input, moves);
    placed_.clear();
    layout_->Place(Without(gone_, input, &left_), &placed_);
    for (Move& move : placed_) move.row = left_.rows[move.row];
    std::ranges::merge(gone_, placed_, std::back_inserter(*moves), {}, &Move::row, &Move::row);
  }

  std::string Explain(const PlacementInput& input, size_t row) const override {
    std::vector<Move> gone;
    Evict(input, &gone);
    const auto at = std::ranges::lower_bound(gone, row, {}, &Move::row);
    const bool leaves = at != gone.end() && at->row == row;
    std::string text = retention_->Explain(input, row);
    if (leaves) return text + ": evicted";
    Rows left;
    const PlacementInput rest = Without(gone, input, &left);
    return fmt::format("{}: it stays; {}", text, layout_->Explain(rest, row - (at - gone.begin())));
  }

  bool SetT0Share(double share) override { return layout_->SetT0Share(share); }
  void FindExpiring(const PlacementInput& input, std::vector<Expiry>* expiring) const override {
    retention_->FindExpiring(input, expiring);
  }
  int LongestStep() const override { return retention_->LongestStep(); }
  int DecidedAfter() const override { return retention_->DecidedAfter(); }
  size_t RowsAfter(size_t num_tokens, size_t num_given, StepKind kind) const override {
    return retention_->RowsAfter(num_tokens, num_given, kind);
  }
  int Interval() const override { return retention_->Interval(); }

  Status SaveState(StateWriter* to) const override {
    EBB_RETURN_IF_ERROR(retention_->SaveState(to));
    return layout_->SaveState(to);
  }
  Status LoadState(StateReader* from) override {
    EBB_RETURN_IF_ERROR(retention_->LoadState(from));
    return layout_->LoadState(from);
  }

 private:
  // Rows holds the rows of a group that are left after evictions.
  struct Rows {
    std::vector<uint32_t> rows;  // their indices before the evictions
    std::vector<Position> positions;
    std::vector<Tier> tiers;
    std::vector<float> scores;
  };

  [[nodiscard]] bool RetentionIsDue(const PlacementInput& input, size_t num_rows) const {
    return input.new_tokens > 0 && retention_->Due(input, num_rows);
  }

  // Appends the evictions of the retention, if it is due.
  void Evict(const PlacementInput& input, std::vector<Move>* gone) const {
    if (!RetentionIsDue(input, input.positions.size())) return;
    retention_->Place(input, gone);
    std::erase_if(*gone, [](const Move& move) { return move.to != Tier::kT3; });
  }

  // Returns `input` without the evicted rows. The result refers to `left`.
  static PlacementInput Without(std::span<const Move> gone, PlacementInput input, Rows* left) {
    if (gone.empty()) return input;
    left->rows.clear();
    auto next = gone.begin();
    for (uint32_t row = 0; row < input.positions.size(); ++row) {
      if (next != gone.end() && next->row == row) {
        ++next;
      } else {
        left->rows.push_back(row);
      }
    }
    const auto keep = [&]<typename T>(std::span<const T>* all, std::vector<T>* kept) {
      if (all->empty()) return;
      kept->clear();
      for (const uint32_t row : left->rows) kept->push_back((*all)[row]);
      *all = *kept;
    };
    keep(&input.positions, &left->positions);
    keep(&input.tiers, &left->tiers);
    keep(&input.scores, &left->scores);
    return input;
  }

  const std::unique_ptr<Placement> retention_;
  const std::unique_ptr<Placement> layout_;
  const bool has_caps_;  // which the layout checks
  std::vector<Move> gone_;
  std::vector<Move> placed_;
  Rows left_;
};

}  // namespace

std::unique_ptr<Placement> MakeStackedPlacement(std::unique_ptr<Placement> retention,
                                                std::unique_ptr<Placement> layout, bool has_caps) {
  if (retention == nullptr) return layout;
  if (layout == nullptr) return retention;
  return std::make_unique<StackedPlacement>(std::move(retention), std::move(layout), has_caps);
}

}  // namespace ebb
