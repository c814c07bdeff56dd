// The arithmetic of fidelity: comparing two rows of logits, summing up in a stream, intervals.
#ifndef EBB_LAB_EVAL_FIDELITY_STATISTICS_H_
#define EBB_LAB_EVAL_FIDELITY_STATISTICS_H_

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ebb/lab/fidelity.h"
#include "ebb/types.h"

namespace ebb {

// One decode step. Not finite where the logits hold no distribution.
struct StepComparison {
  double kl = 0;  // KL(full || setting) in nats
  double max_logit_difference = 0;
  bool same_top = false;
  // -log of the probability of the token that follows; empty: none does.
  std::optional<double> nll;
  std::optional<double> nll_full;

  [[nodiscard]] bool Finite() const;
};
// full, setting: [vocab_size]. The sums are in double; of equal logits the lower token is likelier.
[[nodiscard]] StepComparison CompareLogits(std::span<const float> full,
                                           std::span<const float> setting,
                                           std::optional<Token> next);

// Sums over steps; the means of any set of blocks follow from the sum of their sums.
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
  // Blocks do not span windows.
  void EndWindow();
  // Reads options.resamples, confidence and seed.
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
