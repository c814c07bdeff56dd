#include "src/policy/mass_totals.h"

#include <algorithm>

namespace ebb {

void MassTotals::Resume(int group, std::span<const float> scores) {
  assert(totals_[group].empty());
  std::ranges::copy(scores, totals_.Append(group, scores.size()).begin());
}

}  // namespace ebb
