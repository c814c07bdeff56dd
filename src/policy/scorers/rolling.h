// A number per token over a trailing window of 64 tokens, causal: what "EpiKV" (002) smooths and
// centres its signals with. The window holds the token itself; while it is not full, what there is
// [ours].
#ifndef EBB_POLICY_SCORERS_ROLLING_H_
#define EBB_POLICY_SCORERS_ROLLING_H_

#include <cstdint>
#include <vector>

#include "ebb/state.h"
#include "ebb/status.h"

namespace ebb {

inline constexpr int kRollingTokens = 64;

class Rolling {
 public:
  explicit Rolling(int window = kRollingTokens) : ring_(window) {}

  void Push(float value);
  void Clear() { count_ = 0; }
  [[nodiscard]] float Mean() const;  // 0 while empty
  // For the newest: (value - mean) / (standard deviation + eps), the deviation of the window as it
  // is, not an estimate; eps is 1e-6 [ours]. 0 while empty.
  [[nodiscard]] float ZScore() const;
  void Save(StateWriter* to) const;
  [[nodiscard]] Status Load(StateReader* from);

 private:
  [[nodiscard]] int Size() const;

  std::vector<float> ring_;  // [window]
  int64_t count_ = 0;        // pushed since it was empty
};

}  // namespace ebb

#endif  // EBB_POLICY_SCORERS_ROLLING_H_
