// How many tokens of a prompt a step may read so that it ends in time, by the times of the last
// such steps.
#ifndef EBB_SEQUENCE_PROMPT_PACE_H_
#define EBB_SEQUENCE_PROMPT_PACE_H_

#include <algorithm>
#include <cstddef>

namespace ebb {

class PromptPace {
 public:
  // A step that read `num_tokens` of prompts, and whatever stood beside them, took so long.
  void RecordRead(size_t num_tokens, double seconds) {
    if (num_tokens < kFewest) return;
    const double of_step = seconds / static_cast<double>(num_tokens);
    // Steps become slower as a prompt grows: what they take is believed at once, what they save
    // little by little.
    const bool slower = of_step > seconds_per_token_;
    seconds_per_token_ = slower ? of_step : 0.75 * seconds_per_token_ + 0.25 * of_step;
  }
  // Before the first step: kFirst.
  [[nodiscard]] size_t TokensWithin(double seconds) const {
    if (seconds_per_token_ == 0) return kFirst;
    const double tokens = std::min(kShare * seconds / seconds_per_token_, kMost);
    return std::max(static_cast<size_t>(std::max(tokens, 0.0)), kFewest);
  }

  static constexpr size_t kFirst = 32;
  static constexpr size_t kFewest = 2;

 private:
  static constexpr double kMost = 1 << 20;
  // Steps that should take as long as one another took up to a third more here.
  static constexpr double kShare = 0.75;
  double seconds_per_token_ = 0;  // 0: unknown
};

}  // namespace ebb

#endif  // EBB_SEQUENCE_PROMPT_PACE_H_
