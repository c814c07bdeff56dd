#include "ebb/lab/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <fmt/format.h>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/hypergeometric.hpp>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>

namespace ebb {
namespace {

Status CheckCount(Count count) {
  if (count.successes >= 0 && count.successes <= count.trials) return OkStatus();
  return InvalidArgument(fmt::format("expected successes between 0 and the trials, found {} of {}",
                                     count.successes, count.trials));
}

Status CheckConfidence(double confidence) {
  if (confidence > 0 && confidence < 1) return OkStatus();
  return InvalidArgument(
      fmt::format("expected a confidence between 0 and 1, found {}", confidence));
}

// The correlation of ranks, whose mean is (n + 1) / 2.
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

Result<Interval> ClopperPearson(Count count, double confidence) {
  EBB_RETURN_IF_ERROR(CheckCount(count));
  EBB_RETURN_IF_ERROR(CheckConfidence(confidence));
  if (count.trials == 0) return Interval{.low = 0, .high = 1};
  using Binomial = boost::math::binomial_distribution<double>;
  const auto trials = static_cast<double>(count.trials);
  const auto successes = static_cast<double>(count.successes);
  const double tail = (1 - confidence) / 2;
  return Interval{
      .low = Binomial::find_lower_bound_on_p(trials, successes, tail),
      .high = Binomial::find_upper_bound_on_p(trials, successes, tail),
  };
}

Result<double> FisherExactTwoSided(Count a, Count b) {
  EBB_RETURN_IF_ERROR(CheckCount(a));
  EBB_RETURN_IF_ERROR(CheckCount(b));
  constexpr int64_t kMostTrials = int64_t{1} << 30;
  if (a.trials > kMostTrials || b.trials > kMostTrials) {
    return InvalidArgument(fmt::format("expected at most {} trials, found {} and {}", kMostTrials,
                                       a.trials, b.trials));
  }
  const int64_t successes = a.successes + b.successes;
  const int64_t lowest = std::max<int64_t>(0, successes - b.trials);
  const int64_t highest = std::min(successes, a.trials);
  if (lowest == highest) return 1.0;
  const boost::math::hypergeometric_distribution<double> tables(
      static_cast<unsigned>(successes), static_cast<unsigned>(a.trials),
      static_cast<unsigned>(a.trials + b.trials));
  // Tables as likely as this one must not be lost to rounding.
  const double limit = pdf(tables, static_cast<double>(a.successes)) * (1 + 1e-7);
  double sum = 0;
  for (int64_t k = lowest; k <= highest; ++k) {
    const double probability = pdf(tables, static_cast<double>(k));
    if (probability <= limit) sum += probability;
  }
  return std::min(sum, 1.0);
}

double FisherZHalfWidth(int64_t samples, double confidence) {
  if (samples <= 3 || !CheckConfidence(confidence).ok()) {
    return std::numeric_limits<double>::infinity();
  }
  const boost::math::normal_distribution<double> normal;
  return quantile(normal, (1 + confidence) / 2) / std::sqrt(static_cast<double>(samples - 3));
}

Interval FisherZInterval(double r, int64_t samples, double confidence) {
  const double half_width = FisherZHalfWidth(samples, confidence);
  // A perfect correlation has no width in z, however few the samples.
  if (std::isinf(half_width)) return {.low = -1, .high = 1};
  const double z = std::atanh(r);
  return {.low = std::tanh(z - half_width), .high = std::tanh(z + half_width)};
}

double MeanHalfWidth(double sum, double sum_of_squares, int64_t samples, double confidence) {
  if (samples < 2 || !CheckConfidence(confidence).ok()) {
    return std::numeric_limits<double>::infinity();
  }
  const auto n = static_cast<double>(samples);
  // Rounding may leave less than nothing.
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
