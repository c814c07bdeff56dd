#include "ebb/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

namespace ebb {

double LogSumExp(std::span<const float> logits) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const float logit : logits) largest = std::max(largest, double{logit});
  if (!std::isfinite(largest)) return std::numeric_limits<double>::quiet_NaN();
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  return largest + std::log(sum);
}

Logprobs LogprobsOf(std::span<const float> logits, Token chosen, int num_top) {
  const double log_sum = LogSumExp(logits);
  Logprobs result;
  result.chosen = {chosen, logits[chosen] - log_sum};
  if (num_top == 0 || std::isnan(log_sum)) return result;
  std::vector<Token> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto end = tokens.begin() + std::min(tokens.size(), static_cast<size_t>(num_top));
  std::partial_sort(tokens.begin(), end, tokens.end(), [&](Token a, Token b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  for (auto token = tokens.begin(); token != end; ++token) {
    result.top.push_back({*token, logits[*token] - log_sum});
  }
  return result;
}

}  // namespace ebb
