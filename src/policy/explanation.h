// Words for why a placement puts a row where it does.
#ifndef EBB_POLICY_EXPLANATION_H_
#define EBB_POLICY_EXPLANATION_H_

#include <cstddef>
#include <span>
#include <string>

#include "ebb/policy.h"

namespace ebb {

// Returns the place of a row, from 1, in the order in which the rows of the ranges go:
// RowSelection's (selection.h). REQUIRES: the ranges hold the row.
[[nodiscard]] size_t RankAmong(std::span<const float> scores, std::span<const RowRange> among,
                               size_t row);
// Returns "score 0.0123, rank 31 of 204 from the lowest".
[[nodiscard]] std::string ScoreText(std::span<const float> scores, std::span<const RowRange> among,
                                    size_t row);

}  // namespace ebb

#endif  // EBB_POLICY_EXPLANATION_H_
