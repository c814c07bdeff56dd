#include "ebb/lab/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <boost/math/distributions/students_t.hpp>

namespace ebb {
namespace {

bool IsConfidence(double confidence) { return confidence > 0 && confidence < 1; }

// Returns the correlation of two lists of ranks, whose mean is (n + 1) / 2.
double RankCorrelation(const std::vector<double>& a, const std::vector<double>& b) {
  const double mean = (static_cast<double>(a.size()) + 1) / 2;
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += (a[i] - mean) * (b[i] - mean);
    aa += (a[i] - mean) * (a[i] - mean);
    bb += (b[i] - mean) * (b[i] - mean);
  }
  if (aa == 0 || bb == 0) return std::numeric_limits<double>::quiet_NaN();
  return std::clamp(ab / std::sqrt(aa * bb), -1.0, 1.0);
}

}  // namespace

std::vector<double> Ranks(std::span<const double> values) {
  std::vector<size_t> order(values.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return values[a] < values[b]; });
  std::vector<double> ranks(values.size());
  for (size_t begin = 0; begin < order.size();) {
    size_t end = begin + 1;
    while (end < order.size() && values[order[end]] == values[order[begin]]) ++end;
    const double rank = (static_cast<double>(begin + end) + 1) / 2;
    for (; begin < end; ++begin) ranks[order[begin]] = rank;
  }
  return ranks;
}

double MeanHalfWidth(double sum, double sum_of_squares, int64_t samples, double confidence) {
  if (samples < 2 || !IsConfidence(confidence)) {
    return std::numeric_limits<double>::infinity();
  }
  const auto n = static_cast<double>(samples);
  // Rounding may make the variance slightly negative.
  const double variance = std::max(0.0, (sum_of_squares - sum * sum / n) / (n - 1));
  const boost::math::students_t_distribution<double> student(n - 1);
  return quantile(student, (1 + confidence) / 2) * std::sqrt(variance / n);
}

double SpearmanCorrelation(std::span<const double> a, std::span<const double> b) {
  const auto is_nan = [](double value) { return std::isnan(value); };
  if (a.size() < 2 || a.size() != b.size() || std::any_of(a.begin(), a.end(), is_nan) ||
      std::any_of(b.begin(), b.end(), is_nan)) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  return RankCorrelation(Ranks(a), Ranks(b));
}

Interval Percentiles(std::vector<double> values, double confidence) {
  std::erase_if(values, [](double value) { return std::isnan(value); });
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (values.empty()) return {.low = kNan, .high = kNan};
  std::ranges::sort(values);
  const auto at = [&](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto below = static_cast<size_t>(place);
    const size_t above = std::min(below + 1, values.size() - 1);
    return std::lerp(values[below], values[above], place - static_cast<double>(below));
  };
  const double tail = (1 - confidence) / 2;
  return {.low = at(tail), .high = at(1 - tail)};
}

}  // namespace ebb
