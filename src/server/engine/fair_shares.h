// How much of the engine's work each owner of requests has had while somebody waited, so that the
// one who had least goes first: fair queueing in cost. An owner waits that has a request which is
// not decoding yet. Work that was not asked for is not saved up: who begins to wait starts level
// with the one of the others who wait that had least. Once nobody waits, all start anew.
#ifndef EBB_SERVER_ENGINE_FAIR_SHARES_H_
#define EBB_SERVER_ENGINE_FAIR_SHARES_H_

#include <cstdint>
#include <map>
#include <set>

namespace ebb::server {

// Who asks: requests of one owner take turns among themselves.
using OwnerId = uint64_t;

// The cost of `tokens` tokens that are computed one after another behind `rows` others, in tokens
// behind none. To read 4096 rows of all layers takes about as long as to compute a token.
[[nodiscard]] inline double CostOf(double tokens, double rows) {
  constexpr double kRowsPerToken = 4096;
  return tokens + tokens * (rows + tokens / 2) / kRowsPerToken;
}

class FairShares {
 public:
  // Who waits now.
  void SetWaiting(const std::set<OwnerId>& waiting);
  // Work that was done for `owner`.
  void Charge(OwnerId owner, double cost) {
    if (!waiting_.empty()) served_[owner] += cost;
  }
  // What `owner` has had, to be compared with others.
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
