// FairShares adds up the engine's work for each owner of requests while requests wait, so that the
// owner with the least work is served first: fair queueing by cost. An owner counts as waiting
// while it has a request that is not decoding yet. Owners do not save up unused work: one that
// begins to wait gets the same sum as the waiting owner with the least work. When no request waits,
// all sums restart from zero.
#ifndef EBB_SERVER_ENGINE_FAIR_SHARES_H_
#define EBB_SERVER_ENGINE_FAIR_SHARES_H_

#include <cstdint>
#include <map>
#include <set>

namespace ebb::server {

// OwnerId identifies the owner of requests, such as an API key. FairShares divides the engine among
// owners, not among their requests.
using OwnerId = uint64_t;

// Returns the cost of computing `tokens` tokens in sequence after `rows` earlier tokens. The unit
// is the cost of one token without earlier ones; reading 4096 rows of all layers takes about as
// long.
[[nodiscard]] inline double CostOf(double tokens, double rows) {
  constexpr double kRowsPerToken = 4096;
  return tokens + tokens * (rows + tokens / 2) / kRowsPerToken;
}

class FairShares {
 public:
  // Sets which owners have waiting requests now.
  void SetWaiting(const std::set<OwnerId>& waiting);
  // Adds work done for `owner`, if any owner waits.
  void Charge(OwnerId owner, double cost) {
    if (!waiting_.empty()) served_[owner] += cost;
  }
  // Returns the owner's sum of work, for comparison with other owners.
  [[nodiscard]] double served(OwnerId owner) const {
    const auto found = served_.find(owner);
    return found == served_.end() ? 0 : found->second;
  }

 private:
  std::set<OwnerId> waiting_;
  std::map<OwnerId, double> served_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_FAIR_SHARES_H_
