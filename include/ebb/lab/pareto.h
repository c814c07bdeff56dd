// Fronts of settings by what they cost and what they score, and how far one front lies above
// another (Dynamic Memory Sparsification, 5.1 and App. E).
//
// SPDX-License-Identifier: MIT
#ifndef EBB_LAB_PARETO_H_
#define EBB_LAB_PARETO_H_

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "ebb/lab/statistics.h"

namespace [[gnu::visibility("default")]] ebb {

struct CostPoint {
  double cost = 0;
  double score = 0;
  bool operator==(const CostPoint&) const = default;
};

// The points that no other one beats: those that cost less score less. Ascending in both.
[[nodiscard]] std::vector<CostPoint> ParetoFront(std::span<const CostPoint> points);

// The longest interval of costs that both fronts span. None where they have none in common.
[[nodiscard]] std::optional<Interval> CommonCosts(std::span<const CostPoint> a,
                                                  std::span<const CostPoint> b);

// The mean of a's score less b's over the costs that both fronts span, each interpolated linearly.
// None where they have no interval in common.
[[nodiscard]] std::optional<double> FrontMargin(std::span<const CostPoint> a,
                                                std::span<const CostPoint> b);

// A point apart by problem, so that problems can be drawn anew.
struct ProblemPoint {
  ProblemSums cost;
  ProblemSums score;
};
// What they come to where problem i is drawn weights[i] times; points that have no observation
// there are left out.
[[nodiscard]] std::vector<CostPoint> PointsOf(std::span<const ProblemPoint> points,
                                              std::span<const double> weights);

struct MarginEstimate {
  std::optional<double> margin;   // of all problems, each once
  std::optional<Interval> costs;  // that both fronts span then
  Interval interval;              // of the resamples that have a margin; NaN where none has
  double none = 0;                // share of the resamples without one
};
// For the margin of the front of methods[a] over that of methods[b].
struct MethodPair {
  size_t a = 0;
  size_t b = 0;
};

// The margin of each pair. Points, fronts and margin are computed anew for every resample, so that
// the interval knows that fronts choose their points by the same problems. All points have as many
// problems; all pairs see the same resamples.
[[nodiscard]] std::vector<MarginEstimate> BootstrapMargins(
    std::span<const std::vector<ProblemPoint>> methods, std::span<const MethodPair> pairs,
    const BootstrapOptions& options = {});

}  // namespace ebb

#endif  // EBB_LAB_PARETO_H_
