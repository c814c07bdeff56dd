#include "src/server/engine/fair_shares.h"

#include <algorithm>
#include <optional>

namespace ebb::server {

void FairShares::SetWaiting(const std::set<OwnerId>& waiting) {
  if (waiting == waiting_) return;
  std::optional<double> least;
  for (const OwnerId owner : waiting_) {
    if (waiting.contains(owner)) least = std::min(least.value_or(served(owner)), served(owner));
  }
  for (const OwnerId owner : waiting) {
    if (waiting_.contains(owner) || !least.has_value()) continue;
    served_[owner] = std::max(served(owner), *least);
  }
  if (!least.has_value()) served_.clear();
  waiting_ = waiting;
}

}  // namespace ebb::server
