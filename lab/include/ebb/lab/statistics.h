// Computes statistics of studies: whether two orders agree, and how certain a mean is. The
// statistics of evaluations are in ebb.summary of the Python package.
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

// Returns half the width of Student's interval around the mean of `samples` values, given their sum
// and the sum of their squares; infinity for fewer than two values.
[[nodiscard]] double MeanHalfWidth(double sum, double sum_of_squares, int64_t samples,
                                   double confidence = kUsualConfidence);

// Returns the ranks of the values, from 1; equal values share the mean of their ranks.
[[nodiscard]] std::vector<double> Ranks(std::span<const double> values);

// Returns Spearman's rank correlation; equal values share the mean of their ranks. NaN for fewer
// than two pairs, if one side is constant, or if a value is NaN. REQUIRES: a.size() == b.size().
[[nodiscard]] double SpearmanCorrelation(std::span<const double> a, std::span<const double> b);

// Returns the ends of the interval that contains the middle `confidence` of the values,
// interpolated linearly. Ignores NaNs; returns NaN if no value is left.
[[nodiscard]] Interval Percentiles(std::vector<double> values,
                                   double confidence = kUsualConfidence);

}  // namespace ebb

#endif  // EBB_LAB_STATISTICS_H_
