// Explains why a token's rows lie where they do, or where a decision puts them.
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "src/sequence/step_settler.h"

namespace ebb {
namespace {

std::optional<size_t> RowAt(Position position, std::span<const Position> positions) {
  const auto found = std::ranges::lower_bound(positions, position);
  if (found == positions.end() || *found != position) return std::nullopt;
  return static_cast<size_t>(found - positions.begin());
}

Tier TierOfRow(const PlacementInput& facts, size_t row) {
  return facts.tiers.empty() ? Tier::kT0 : facts.tiers[row];
}

std::string BehindWindowText(int window) {
  return fmt::format("its layers see the newest {} tokens alone", window);
}

}  // namespace

void StepSettler::Explain(const PlacementInput& facts, std::span<const Move> moves) {
  const std::optional<size_t> row = RowAt(*options_->explained, facts.positions);
  if (!row.has_value()) return;
  const auto move = std::ranges::find(moves, *row, &Move::row);
  AddExplanation(facts.group, move == moves.end() ? TierOfRow(facts, *row) : move->to,
                 facts.next_position, [&] { return policy_->placement->Explain(facts, *row); });
}

void StepSettler::ExplainExpired(int group, Position next) {
  const std::optional<size_t> row = RowAt(*options_->explained, cache_->positions(group));
  if (!row.has_value() || std::ranges::count(removed_, *row) == 0) return;
  AddExplanation(group, Tier::kT3, next,
                 [&] { return BehindWindowText(cache_->layout().WindowOf(group)); });
}

std::vector<Explanation> StepSettler::ExplainNow(PlacementInput facts, Position position) const {
  std::vector<Explanation> found;
  if (policy_->placement == nullptr) return found;
  for (int group = 0; group < cache_->layout().num_groups(); ++group) {
    TurnTo(group, &facts);
    Explanation& one = found.emplace_back(Explanation{
        .num_tokens = facts.next_position, .group = group, .tier = Tier::kT3, .why = {}});
    const std::optional<size_t> row = RowAt(position, facts.positions);
    if (!row.has_value()) {
      const int window = cache_->layout().WindowOf(group);
      one.why = window > 0 && position + window <= facts.next_position
                    ? BehindWindowText(window)
                    : "an earlier decision evicted it";
      continue;
    }
    if (scores_used_) facts.scores = ScoresOf(group);
    if (CapsMayBind()) facts.tiers = cache_->tiers(group);
    one.tier = TierOfRow(facts, *row);
    one.why = policy_->placement->Explain(facts, *row);
  }
  return found;
}

void StepSettler::AddExplanation(int group, Tier tier, Position num_tokens,
                                 const std::function<std::string()>& why) {
  const auto is_of_group = [group](const Explanation& one) { return one.group == group; };
  const auto end = explanations_.rend();
  const auto last = std::find_if(explanations_.rbegin(), end, is_of_group);
  const auto before = last == end ? end : std::find_if(last + 1, end, is_of_group);
  try {
    Explanation latest = {.num_tokens = num_tokens, .group = group, .tier = tier, .why = why()};
    // A decision that changes nothing replaces a previous one that changed nothing either.
    const bool replaces = before != end && before->tier == tier && last->tier == tier;
    if (replaces) {
      *last = std::move(latest);
    } else {
      explanations_.push_back(std::move(latest));
    }
  } catch (const std::bad_alloc&) {  // the step goes on without
  }
}

}  // namespace ebb
