// Choosing the rows that go: the one place where scores are compared, hence where ties are broken.
//
// The order of going: the lower score first; of equal scores the higher position first, so that
// the row at the lower position stays. A NaN counts as the highest score: what cannot be judged
// stays longest.
#ifndef EBB_POLICY_SELECTION_H_
#define EBB_POLICY_SELECTION_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ebb/policy.h"

namespace ebb {

[[nodiscard]] size_t CountRows(std::span<const RowRange> ranges);

// Returns the place of a candidate, from 1, in the order in which the candidates go. REQUIRES: the
// candidates hold the row.
[[nodiscard]] size_t RankAmong(std::span<const float> scores, std::span<const RowRange> candidates,
                               size_t row);

// Keeps its work space from one call to the next. One thread at a time.
class RowSelection {
 public:
  // The `count` rows of the candidates that go first, ascending; all of them when there are fewer.
  // The span lives until the next call. REQUIRES: ascending ranges apart from each other, inside
  // `scores`.
  std::span<const uint32_t> First(std::span<const float> scores,
                                  std::span<const RowRange> candidates, size_t count);

  // All candidates, cut into parts by the order of going: the ends[0] rows that go first, then
  // those up to ends[1], and so on, and at last the rest. A part is in no order. The span lives
  // until the next call. REQUIRES: as First(); ascending ends, the last at most the number of
  // candidates.
  std::span<const uint32_t> Cut(std::span<const float> scores, std::span<const RowRange> candidates,
                                std::span<const size_t> ends);

 private:
  std::vector<uint32_t> rows_;
  std::vector<uint64_t> order_;
};

}  // namespace ebb

#endif  // EBB_POLICY_SELECTION_H_
