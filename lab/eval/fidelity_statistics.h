// Computes the statistics of fidelity: compares the logits of two sessions, adds up steps, and
// computes intervals.
#ifndef EBB_LAB_EVAL_FIDELITY_STATISTICS_H_
#define EBB_LAB_EVAL_FIDELITY_STATISTICS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ebb/lab/fidelity.h"
#include "ebb/types.h"

namespace ebb {

// StepComparison compares one decode step of two sessions. Its numbers are not finite if logits are
// not a distribution.
struct StepComparison {
  double kl = 0;  // KL(full || setting), in nats
  double max_logit_difference = 0;
  bool same_top = false;
  // Are -log of the probability of the text's next token; nullopt: the text has ended.
  std::optional<double> nll;
  std::optional<double> nll_full;

  [[nodiscard]] bool Finite() const;
};
// Compares two arrays of logits, [vocab_size] each, in double. Of equally likely tokens, the lower
// one counts as the likeliest.
[[nodiscard]] StepComparison CompareLogits(std::span<const float> full,
                                           std::span<const float> setting,
                                           std::optional<Token> next);

// StepSums adds up steps. From the sums of blocks, the means of any set of blocks can be computed.
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
  // Ends a window: the next step begins a new block, because blocks do not span windows.
  void EndWindow();
  // Returns the report. It uses options.resamples, confidence and seed.
  [[nodiscard]] FidelityReport Report(const FidelityOptions& options) const;

 private:
  const int block_tokens_;
  std::vector<StepSums> blocks_;
  bool open_ = false;  // the last block is not full yet
  int64_t not_finite_ = 0;
  double max_kl_ = 0;
  double max_logit_difference_ = 0;
  int windows_ = 0;
};

}  // namespace ebb

#endif  // EBB_LAB_EVAL_FIDELITY_STATISTICS_H_
