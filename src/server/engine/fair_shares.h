// FairShares counts the engine's work for each owner while requests wait, so that the owner with
// the least work goes first: fair queueing by cost. An owner counts as waiting while it has a
// request that is not decoding yet. Unused work is not saved up: an owner that begins to wait
// starts level with the waiting owner that has the least. When no request waits, all counts restart
// from zero.
#ifndef EBB_SERVER_ENGINE_FAIR_SHARES_H_
#define EBB_SERVER_ENGINE_FAIR_SHARES_H_

#include <cstdint>
#include <map>
#include <set>

namespace ebb::server {

// OwnerId identifies the owner of requests, such as an API key; requests of one owner compete among
// themselves.
using OwnerId = uint64_t;

// Returns the cost of computing `tokens` tokens one after another behind `rows` others, in units of
// a token behind none. Reading 4096 rows of all layers takes about as long as computing a token.
[[nodiscard]] inline double CostOf(double tokens, double rows) {
  constexpr double kRowsPerToken = 4096;
  return tokens + tokens * (rows + tokens / 2) / kRowsPerToken;
}

class FairShares {
 public:
  // Sets which owners wait now.
  void SetWaiting(const std::set<OwnerId>& waiting);
  // Adds work done for `owner`, if any owner waits.
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
