#include "tests/support/logits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace ebb {
namespace {

std::vector<double> LogSoftmax(std::span<const float> logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  std::vector<double> result(logits.begin(), logits.end());
  for (double& value : result) value -= largest + std::log(sum);
  return result;
}

}  // namespace

double StandardDeviation(std::span<const float> logits) {
  const auto size = static_cast<double>(logits.size());
  double sum = 0, sum_of_squares = 0;
  for (const float logit : logits) {
    sum += logit;
    sum_of_squares += static_cast<double>(logit) * logit;
  }
  return std::sqrt(sum_of_squares / size - sum / size * (sum / size));
}

double LargestDifference(std::span<const float> a, std::span<const float> b) {
  if (a.size() != b.size() || a.empty()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(static_cast<double>(a[i]) - b[i]);
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    largest = std::max(largest, difference);
  }
  return largest;
}

double MeanKl(std::span<const float> p, std::span<const float> q, int vocab_size) {
  const size_t rows = p.size() / vocab_size;
  double total = 0;
  for (size_t row = 0; row < rows; ++row) {
    const auto log_p = LogSoftmax(p.subspan(row * vocab_size, vocab_size));
    const auto log_q = LogSoftmax(q.subspan(row * vocab_size, vocab_size));
    for (int i = 0; i < vocab_size; ++i) total += std::exp(log_p[i]) * (log_p[i] - log_q[i]);
  }
  return total / static_cast<double>(rows);
}

}  // namespace ebb
