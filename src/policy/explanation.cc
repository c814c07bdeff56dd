#include "src/policy/explanation.h"

#include <fmt/format.h>

#include <algorithm>

namespace ebb {

size_t RankAmong(std::span<const float> scores, std::span<const RowRange> among, size_t row) {
  const bool is_judged = scores[row] == scores[row];
  size_t rank = 1;
  for (const RowRange& range : among) {
    for (size_t i = range.begin; i < range.end; ++i) {
      const bool other_is_judged = scores[i] == scores[i];
      const bool is_lower = other_is_judged && (!is_judged || scores[i] < scores[row]);
      const bool is_equal = scores[i] == scores[row] || (!is_judged && !other_is_judged);
      if (is_lower || (is_equal && i > row)) ++rank;
    }
  }
  return rank;
}

std::string ScoreText(std::span<const float> scores, std::span<const RowRange> among, size_t row) {
  size_t num_rows = 0;
  for (const RowRange& range : among) num_rows += range.end - range.begin;
  return fmt::format("score {:.4g}, rank {} of {} from the lowest", scores[row],
                     RankAmong(scores, among, row), num_rows);
}

std::string Placement::Explain(const PlacementInput& input, size_t row) const {
  if (input.scores.empty()) return fmt::format("{} places rows by position", Name());
  const RowRange all = {0, static_cast<uint32_t>(input.scores.size())};
  return fmt::format("{}; {}", ScoreText(input.scores, {&all, 1}, row), Name());
}

}  // namespace ebb
