// One key's use of its limits. Rates are buckets: a minute's worth may be used at once, and comes
// back evenly. Tokens are charged when an answer is over, so that a long one may leave a debt; the
// next request waits until it is paid. Pure: times are given, in seconds.
#ifndef EBB_SERVER_ACCESS_KEY_USAGE_H_
#define EBB_SERVER_ACCESS_KEY_USAGE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "src/server/access/api_keys.h"

namespace ebb::server {

enum class UsageLimit { kConcurrent, kRequests, kTokens };

struct UsageRefusal {
  UsageLimit limit = UsageLimit::kConcurrent;
  double retry_after = 0;  // seconds until the limit may let a request in
};

class KeyUsage {
 public:
  // Counts a request in, unless a limit refuses it. Limits may change from call to call.
  [[nodiscard]] std::optional<UsageRefusal> Begin(const KeyLimits& limits, double now);
  // One that Begin() counted is over.
  void End();
  // Tokens that were read or generated.
  void Charge(const KeyLimits& limits, uint64_t tokens, double now);

  // The headers that clients of OpenAI's interface know: limits, the rest, and when the full limit
  // is available again. None for limits that the key does not have.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> Headers(const KeyLimits& limits,
                                                                         double now) const;
  [[nodiscard]] size_t num_running() const { return num_running_; }

 private:
  class Bucket {
   public:
    // At most `size`, all of which comes back within a minute; below zero: a debt.
    [[nodiscard]] double LevelAt(uint64_t size, double now) const;
    void Take(uint64_t size, double amount, double now);
    // Seconds until it holds `level`.
    [[nodiscard]] double SecondsUntil(uint64_t size, double level, double now) const;

   private:
    double missing_ = 0;  // from a full one, at `time_`
    double time_ = 0;
  };

  size_t num_running_ = 0;
  Bucket requests_;
  Bucket tokens_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ACCESS_KEY_USAGE_H_
