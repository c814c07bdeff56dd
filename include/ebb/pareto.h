// Fronts of settings by what they cost and what they score, and how far one front lies above
// another (Dynamic Memory Sparsification, 5.1 and App. E).
#ifndef EBB_PARETO_H_
#define EBB_PARETO_H_

#include <optional>
#include <span>
#include <vector>

namespace ebb {

struct CostPoint {
  double cost = 0;
  double score = 0;
  bool operator==(const CostPoint&) const = default;
};

// The points that no other one beats: those that cost less score less. Ascending in both.
[[nodiscard]] std::vector<CostPoint> ParetoFront(std::span<const CostPoint> points);

// The mean of a's score less b's over the longest interval of costs that both fronts span, each
// interpolated linearly. None where they have no interval in common.
[[nodiscard]] std::optional<double> FrontMargin(std::span<const CostPoint> a,
                                                std::span<const CostPoint> b);

}  // namespace ebb

#endif  // EBB_PARETO_H_
