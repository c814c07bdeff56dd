// KeyUsage counts how much of its limits one key has used. Rates are token buckets: a minute's
// worth may be used at once and is refilled evenly. The tokens of an answer are charged when it
// ends, so that a long answer may leave the bucket below zero; the key's next request is refused
// until the bucket has a token again. The functions are pure: callers pass the time, in seconds.
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
  double retry_after = 0;  // seconds until a retry may succeed
};

class KeyUsage {
 public:
  // Counts a request as running and returns nullopt; or returns which limit refuses it. Limits may
  // change from call to call.
  [[nodiscard]] std::optional<UsageRefusal> Begin(const KeyLimits& limits, double now);
  // Ends a request that Begin() counted as running.
  void End();
  // Counts `tokens`, read or generated, against the limit of tokens per minute.
  void Charge(const KeyLimits& limits, uint64_t tokens, double now);

  // Returns the X-RateLimit headers of OpenAI's API: each limit, how much of it is left, and the
  // time until all of it is. A limit that the key lacks has no header.
  [[nodiscard]] std::vector<std::pair<std::string, std::string>> Headers(const KeyLimits& limits,
                                                                         double now) const;
  [[nodiscard]] size_t num_running() const { return num_running_; }

 private:
  class Bucket {
   public:
    // Returns the level of a bucket of `size`, which is refilled within a minute. A negative level
    // is a debt.
    [[nodiscard]] double LevelAt(uint64_t size, double now) const;
    void Take(uint64_t size, double amount, double now);
    // Returns the seconds until the bucket's level is `level`.
    [[nodiscard]] double SecondsUntil(uint64_t size, double level, double now) const;

   private:
    double missing_ = 0;  // how far the level at `time_` is below `size`
    double time_ = 0;
  };

  size_t num_running_ = 0;
  Bucket requests_;
  Bucket tokens_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ACCESS_KEY_USAGE_H_
