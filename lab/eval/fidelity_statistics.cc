#include "lab/eval/fidelity_statistics.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <random>

#include "ebb/sampler.h"

namespace ebb {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

// kNumStatistics is the number of statistics that get intervals; Statistics() returns them in the
// order of FidelityReport.
constexpr int kNumStatistics = 4;
std::array<double, kNumStatistics> Statistics(const StepSums& sums) {
  const auto mean = [](double sum, int64_t count) {
    return count > 0 ? sum / static_cast<double>(count) : kNan;
  };
  return {mean(sums.kl, sums.steps), mean(static_cast<double>(sums.same_top), sums.steps),
          std::exp(mean(sums.nll, sums.targets)), std::exp(mean(sums.nll_full, sums.targets))};
}

}  // namespace

bool StepComparison::Finite() const {
  return std::isfinite(kl) && std::isfinite(nll.value_or(0)) && std::isfinite(nll_full.value_or(0));
}

StepComparison CompareLogits(std::span<const float> full, std::span<const float> setting,
                             std::optional<Token> next) {
  const double log_sum_full = LogSumExp(full);
  const double log_sum = LogSumExp(setting);
  StepComparison result;
  size_t top_full = 0, top = 0;
  for (size_t i = 0; i < full.size(); ++i) {
    const double log_p = full[i] - log_sum_full;
    const double log_q = setting[i] - log_sum;
    // A token to which the full cache gives probability 0 adds nothing to the KL divergence.
    if (log_p != -std::numeric_limits<double>::infinity()) {
      result.kl += std::exp(log_p) * (log_p - log_q);
    }
    if (full[i] != setting[i]) {
      const double difference = std::fabs(double{full[i]} - setting[i]);
      result.max_logit_difference = std::max(result.max_logit_difference, difference);
    }
    if (full[i] > full[top_full]) top_full = i;
    if (setting[i] > setting[top]) top = i;
  }
  result.same_top = top_full == top;
  if (next.has_value()) {
    result.nll = log_sum - setting[*next];
    result.nll_full = log_sum_full - full[*next];
  }
  return result;
}

StepSums& StepSums::operator+=(const StepSums& other) {
  steps += other.steps;
  same_top += other.same_top;
  targets += other.targets;
  kl += other.kl;
  nll += other.nll;
  nll_full += other.nll_full;
  return *this;
}

void FidelitySums::Add(const StepComparison& step) {
  if (!step.Finite()) {
    ++not_finite_;
    return;
  }
  if (!open_) blocks_.emplace_back();
  const bool has_target = step.nll.has_value();
  blocks_.back() += {.steps = 1,
                     .same_top = step.same_top ? 1 : 0,
                     .targets = has_target ? 1 : 0,
                     .kl = step.kl,
                     .nll = step.nll.value_or(0),
                     .nll_full = step.nll_full.value_or(0)};
  open_ = blocks_.back().steps < block_tokens_;
  max_kl_ = std::max(max_kl_, step.kl);
  max_logit_difference_ = std::max(max_logit_difference_, step.max_logit_difference);
}

void FidelitySums::EndWindow() {
  open_ = false;
  ++windows_;
}

FidelityReport FidelitySums::Report(const FidelityOptions& options) const {
  StepSums total;
  for (const StepSums& block : blocks_) total += block;
  std::array<std::vector<double>, kNumStatistics> drawn;
  std::mt19937_64 random(options.seed);
  for (int resample = 0; resample < options.resamples && !blocks_.empty(); ++resample) {
    StepSums sums;
    for (size_t i = 0; i < blocks_.size(); ++i) sums += blocks_[random() % blocks_.size()];
    const auto statistics = Statistics(sums);
    for (int s = 0; s < kNumStatistics; ++s) drawn[s].push_back(statistics[s]);
  }
  const auto values = Statistics(total);
  const auto estimate = [&](int s) {
    return Estimate{.value = values[s], .interval = Percentiles(drawn[s], options.confidence)};
  };
  return {.tokens = total.steps + not_finite_,
          .not_finite = not_finite_,
          .windows = windows_,
          .mean_kl = estimate(0),
          .max_kl = total.steps > 0 ? max_kl_ : kNan,
          .max_logit_difference = total.steps > 0 ? max_logit_difference_ : kNan,
          .top1 = estimate(1),
          .perplexity = estimate(2),
          .perplexity_full = estimate(3)};
}

}  // namespace ebb
