#include "src/policy/placements.h"

#include <fmt/format.h>

#include <cassert>
#include <cmath>

namespace ebb {

Result<std::unique_ptr<Placement>> MakeNoPlacement(const PlacementOptions&) {
  return std::unique_ptr<Placement>();
}

size_t RowsAllowed(const Budget& budget, size_t base) {
  assert(budget.unit == Budget::Unit::kRows || budget.unit == Budget::Unit::kPercent);
  if (budget.unit == Budget::Unit::kRows) return static_cast<size_t>(budget.value);
  // 16.1 % of 1,000 rows are 161 rows, although 16.1 * 1000 is a little more than 16,100.
  constexpr double kRounding = 1e-6;
  const double exact = budget.value * static_cast<double>(base) / 100.0;
  return static_cast<size_t>(std::ceil(exact - kRounding));
}

std::string BudgetKeyValue(const Budget& budget) {
  const bool rows = budget.unit == Budget::Unit::kRows;
  return fmt::format("{}={}", rows ? "rows" : "percent", budget.value);
}

bool OnInterval(const PlacementInput& input, int interval) {
  return input.step_kind == StepKind::kPrefill || input.decode_steps % interval == 0;
}

void AppendEvictions(std::span<const uint32_t> rows, std::vector<Move>* moves) {
  moves->reserve(moves->size() + rows.size());
  for (const uint32_t row : rows) moves->push_back({.row = row, .to = Tier::kT3});
}

}  // namespace ebb
