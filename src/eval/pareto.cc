#include "ebb/pareto.h"

#include <algorithm>
#include <cstddef>

namespace ebb {
namespace {

// REQUIRES: the front spans `cost`.
double ScoreAt(const std::vector<CostPoint>& front, double cost) {
  const auto after = std::ranges::lower_bound(front, cost, {}, &CostPoint::cost);
  if (after == front.begin() || after->cost == cost) return after->score;
  const CostPoint& before = *(after - 1);
  const double share = (cost - before.cost) / (after->cost - before.cost);
  return before.score + share * (after->score - before.score);
}

}  // namespace

std::vector<CostPoint> ParetoFront(std::span<const CostPoint> points) {
  std::vector<CostPoint> sorted(points.begin(), points.end());
  std::ranges::sort(sorted, [](const CostPoint& a, const CostPoint& b) {
    return a.cost != b.cost ? a.cost < b.cost : a.score > b.score;
  });
  std::vector<CostPoint> front;
  for (const CostPoint& point : sorted) {
    if (front.empty() || point.score > front.back().score) front.push_back(point);
  }
  return front;
}

std::optional<double> FrontMargin(std::span<const CostPoint> a, std::span<const CostPoint> b) {
  const std::vector<CostPoint> fronts[] = {ParetoFront(a), ParetoFront(b)};
  if (fronts[0].empty() || fronts[1].empty()) return std::nullopt;
  const double low = std::max(fronts[0].front().cost, fronts[1].front().cost);
  const double high = std::min(fronts[0].back().cost, fronts[1].back().cost);
  if (low >= high) return std::nullopt;
  // Both are straight between two neighbouring costs of either: trapezoids are exact.
  std::vector<double> costs = {low, high};
  for (const auto& front : fronts) {
    for (const CostPoint& point : front) {
      if (point.cost > low && point.cost < high) costs.push_back(point.cost);
    }
  }
  std::ranges::sort(costs);
  double area = 0;
  for (size_t i = 1; i < costs.size(); ++i) {
    const auto difference = [&](double cost) {
      return ScoreAt(fronts[0], cost) - ScoreAt(fronts[1], cost);
    };
    area += (costs[i] - costs[i - 1]) * (difference(costs[i - 1]) + difference(costs[i])) / 2;
  }
  return area / (high - low);
}

}  // namespace ebb
