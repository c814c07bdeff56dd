// Chooses the rows that are evicted or demoted first. Scores are compared here alone, so ties are
// broken here alone.
//
// Rows leave in this order: lower scores first; among equal scores the higher position first, so
// that the row at the lower position stays. A NaN counts as the highest score, so that a row that
// cannot be judged stays longest.
#ifndef EBB_POLICY_SELECTION_H_
#define EBB_POLICY_SELECTION_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ebb/policy.h"

namespace ebb {

[[nodiscard]] size_t CountRows(std::span<const RowRange> ranges);

// Returns the rank of `row`, from 1, in the order in which the candidates leave. REQUIRES: the
// candidates contain the row.
[[nodiscard]] size_t RankAmong(std::span<const float> scores, std::span<const RowRange> candidates,
                               size_t row);

// RowSelection chooses rows and reuses its work space between calls. It belongs to one thread at a
// time.
class RowSelection {
 public:
  // Returns the `count` candidates that leave first, in ascending order of index; all candidates if
  // there are fewer. The span is valid until the next call. REQUIRES: the candidate ranges are
  // ascending, disjoint, and inside `scores`.
  std::span<const uint32_t> First(std::span<const float> scores,
                                  std::span<const RowRange> candidates, size_t count);

  // Returns all candidates, partitioned in the order in which they leave: first ends[0] rows, then
  // the rows up to ends[1], and so on, then the rest. Rows within a part are in no order. The span
  // is valid until the next call. REQUIRES: as First(); `ends` ascend, and the last is at most the
  // number of candidates.
  std::span<const uint32_t> Cut(std::span<const float> scores, std::span<const RowRange> candidates,
                                std::span<const size_t> ends);

 private:
  std::vector<uint32_t> rows_;
  std::vector<uint64_t> order_;
};

}  // namespace ebb

#endif  // EBB_POLICY_SELECTION_H_
