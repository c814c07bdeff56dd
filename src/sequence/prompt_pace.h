// Estimates how many tokens of a prompt a step may read to end in time, from the times of recent
// steps.
#ifndef EBB_SEQUENCE_PROMPT_PACE_H_
#define EBB_SEQUENCE_PROMPT_PACE_H_

#include <algorithm>
#include <cstddef>

namespace ebb {

class PromptPace {
 public:
  // Records that a step with `num_tokens` prompt tokens, and the other sequences' tokens in the
  // same batch, took `seconds`.
  void RecordRead(size_t num_tokens, double seconds) {
    if (num_tokens < kFewest) return;
    const double of_step = seconds / static_cast<double>(num_tokens);
    // Steps become slower as a prompt grows, so the estimate follows a slower step at once and a
    // faster step gradually.
    const bool slower = of_step > seconds_per_token_;
    seconds_per_token_ = slower ? of_step : 0.75 * seconds_per_token_ + 0.25 * of_step;
  }
  // Returns the number of prompt tokens that a step can read in this time; kFirst before any step
  // was recorded.
  [[nodiscard]] size_t TokensWithin(double seconds) const {
    if (seconds_per_token_ == 0) return kFirst;
    const double tokens = std::min(kShare * seconds / seconds_per_token_, kMost);
    return std::max(static_cast<size_t>(std::max(tokens, 0.0)), kFewest);
  }

  static constexpr size_t kFirst = 32;
  static constexpr size_t kFewest = 2;

 private:
  static constexpr double kMost = 1 << 20;
  // Steps of equal size varied by up to a third, so only this share of the time is planned for.
  static constexpr double kShare = 0.75;
  double seconds_per_token_ = 0;  // 0: unknown
};

}  // namespace ebb

#endif  // EBB_SEQUENCE_PROMPT_PACE_H_
