#include "apps/lab/profile/recurrence.h"

#include <algorithm>
#include <cstddef>

namespace ebb::cli {

void RecurrenceTracker::Observe(std::span<const double> mass, double sum) {
  last_active_.resize(std::max(last_active_.size(), mass.size()), step_);
  intervals_.resize(last_active_.size(), 0);
  ++step_;
  for (size_t p = 0; p < mass.size(); ++p) {
    if (mass[p] < kActiveShare * sum) continue;
    intervals_[p] = std::max(intervals_[p], step_ - last_active_[p]);
    last_active_[p] = step_;
  }
}

}  // namespace ebb::cli
