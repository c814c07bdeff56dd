// Computes the statistics of fidelity: compares two rows of logits, sums up a stream of steps, and
// finds intervals.
#ifndef EBB_LAB_EVAL_FIDELITY_STATISTICS_H_
#define EBB_LAB_EVAL_FIDELITY_STATISTICS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ebb/lab/fidelity.h"
#include "ebb/types.h"

namespace ebb {

// StepComparison compares one decode step of two sessions. Its numbers are not finite if logits
// form no distribution.
struct StepComparison {
  double kl = 0;  // KL(full || setting) in nats
  double max_logit_difference = 0;
  bool same_top = false;
  // Holds -log of the probability of the next token of the text; nullopt: the text has ended.
  std::optional<double> nll;
  std::optional<double> nll_full;

  [[nodiscard]] bool Finite() const;
};
// Compares logits, [vocab_size] each, with sums in double. Among equal logits the lower token
// counts as the likeliest.
[[nodiscard]] StepComparison CompareLogits(std::span<const float> full,
                                           std::span<const float> setting,
                                           std::optional<Token> next);

// StepSums sums up steps. The means of any set of blocks follow from the sum of their sums.
struct StepSums {
  int64_t steps = 0;
  int64_t same_top = 0;
  int64_t targets = 0;
  double kl = 0;
  double nll = 0;
  double nll_full = 0;

  StepSums& operator+=(const StepSums& other);
};

class FidelitySums {
 public:
  explicit FidelitySums(int block_tokens) : block_tokens_(block_tokens) {}

  void Add(const StepComparison& step);
  // Ends a window, so that the next step begins a block: blocks do not span windows.
  void EndWindow();
  // Returns the report. Uses options.resamples, confidence and seed.
  [[nodiscard]] FidelityReport Report(const FidelityOptions& options) const;

 private:
  const int block_tokens_;
  std::vector<StepSums> blocks_;
  bool open_ = false;  // whether the last block takes more steps
  int64_t not_finite_ = 0;
  double max_kl_ = 0;
  double max_logit_difference_ = 0;
  int windows_ = 0;
};

}  // namespace ebb

#endif  // EBB_LAB_EVAL_FIDELITY_STATISTICS_H_
