#include "src/policy/placements.h"

#include <fmt/format.h>

#include <cassert>
#include <cmath>

#include "src/policy/selection.h"

namespace ebb {

Result<std::unique_ptr<Placement>> MakeNoPlacement(const PlacementOptions&) {
  return std::unique_ptr<Placement>();
}

size_t RowsAllowed(const Budget& budget, size_t base) {
  assert(budget.unit == Budget::Unit::kRows || budget.unit == Budget::Unit::kPercent ||
         budget.unit == Budget::Unit::kBeyond);
  if (budget.unit != Budget::Unit::kPercent) return static_cast<size_t>(budget.value);
  // Tolerates rounding: 16.1 % of 1,000 rows are 161 rows, although 16.1 * 1000 is a little more
  // than 16,100.
  constexpr double kRounding = 1e-6;
  const double exact = budget.value * static_cast<double>(base) / 100.0;
  return static_cast<size_t>(std::ceil(exact - kRounding));
}

std::string BudgetKeyValue(const Budget& budget) {
  const std::string_view unit = budget.unit == Budget::Unit::kRows      ? "rows"
                                : budget.unit == Budget::Unit::kPercent ? "percent"
                                                                        : "beyond";
  return fmt::format("{}={}", unit, budget.value);
}

Status NeedsBudget(const PlacementOptions& options) {
  if (options.budget.unit != Budget::Unit::kNone) return OkStatus();
  return InvalidArgument(fmt::format(
      "policy \"{}\" needs a budget: rows (1024), percent (25%) or bytes (64MiB)", options.policy));
}

bool OnInterval(const PlacementInput& input, int interval) {
  if (input.step_kind == StepKind::kPrefill) return true;
  return input.generated_tokens / interval > (input.generated_tokens - input.new_tokens) / interval;
}

void AppendEvictions(std::span<const uint32_t> rows, std::vector<Move>* moves) {
  moves->reserve(moves->size() + rows.size());
  for (const uint32_t row : rows) moves->push_back({.row = row, .to = Tier::kT3});
}

std::string ScoreText(std::span<const float> scores, std::span<const RowRange> among, size_t row) {
  return fmt::format("score {:.4g}, rank {} of {} from the lowest", scores[row],
                     RankAmong(scores, among, row), CountRows(among));
}

std::string Placement::Explain(const PlacementInput& input, size_t row) const {
  if (input.scores.empty()) return fmt::format("{} places rows by position", Name());
  const RowRange all = {0, static_cast<uint32_t>(input.scores.size())};
  return fmt::format("{}; {}", ScoreText(input.scores, {&all, 1}, row), Name());
}

}  // namespace ebb
