// Computes means and z-scores of a number per token over the trailing 64 tokens, as "EpiKV" (002)
// does with its signals. The window contains the token itself; a window that is not full yet uses
// the tokens that it has [ours].
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
  // Returns (value - mean) / (standard deviation + eps) of the newest value; 0 while empty. The
  // deviation is the population's, with divisor n; eps is 1e-6 [ours].
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
