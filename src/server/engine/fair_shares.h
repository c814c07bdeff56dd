// The engine's work for each owner of requests while requests waited, so that the owner with the
// least work goes first: fair queueing by cost. An owner waits that has a request which is not
// decoding yet. Unused work is not saved up: an owner that begins to wait starts level with the
// waiting owner that had least. When no request waits, all counts start from zero.
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
  // Returns the work of `owner`, to be compared with other owners'.
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
