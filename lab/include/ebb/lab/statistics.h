// Statistics of studies: whether two orders agree, and how sure a mean is. Those of evaluations are
// ebb.summary's.
//
// Thread safety: free functions without state.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_LAB_STATISTICS_H_
#define EBB_LAB_STATISTICS_H_

#include <cstdint>
#include <span>
#include <vector>

namespace [[gnu::visibility("default")]] ebb {

struct Interval {
  double low = 0;
  double high = 0;
};

inline constexpr double kUsualConfidence = 0.95;

// Half of the width of Student's interval around the mean of `samples` values that have this sum
// and this sum of squares. Infinite for fewer than two.
[[nodiscard]] double MeanHalfWidth(double sum, double sum_of_squares, int64_t samples,
                                   double confidence = kUsualConfidence);

// Ranks from 1; equal values share the mean of theirs.
[[nodiscard]] std::vector<double> Ranks(std::span<const double> values);

// Spearman's rank correlation; equal values share the mean of their ranks. NaN for fewer than two
// pairs, where one side is constant, or where a value is NaN. REQUIRES a.size() == b.size().
[[nodiscard]] double SpearmanCorrelation(std::span<const double> a, std::span<const double> b);

// Ends of the middle `confidence` of the values, linear between neighbours. NaNs are left out; NaN
// where nothing is left.
[[nodiscard]] Interval Percentiles(std::vector<double> values,
                                   double confidence = kUsualConfidence);

}  // namespace ebb

#endif  // EBB_LAB_STATISTICS_H_
