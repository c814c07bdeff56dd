#include "ebb/lab/pareto.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

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

std::optional<Interval> Overlap(const std::vector<CostPoint>& a, const std::vector<CostPoint>& b) {
  if (a.empty() || b.empty()) return std::nullopt;
  const double low = std::max(a.front().cost, b.front().cost);
  const double high = std::min(a.back().cost, b.back().cost);
  return low < high ? std::optional<Interval>({.low = low, .high = high}) : std::nullopt;
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

std::optional<Interval> CommonCosts(std::span<const CostPoint> a, std::span<const CostPoint> b) {
  return Overlap(ParetoFront(a), ParetoFront(b));
}

std::optional<double> FrontMargin(std::span<const CostPoint> a, std::span<const CostPoint> b) {
  const std::vector<CostPoint> fronts[] = {ParetoFront(a), ParetoFront(b)};
  const std::optional<Interval> common = Overlap(fronts[0], fronts[1]);
  if (!common.has_value()) return std::nullopt;
  const auto [low, high] = *common;
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

std::vector<CostPoint> PointsOf(std::span<const ProblemPoint> points,
                                std::span<const double> weights) {
  std::vector<CostPoint> means;
  for (const ProblemPoint& point : points) {
    const CostPoint mean = {.cost = point.cost.Mean(weights), .score = point.score.Mean(weights)};
    if (std::isfinite(mean.cost) && std::isfinite(mean.score)) means.push_back(mean);
  }
  return means;
}

std::vector<MarginEstimate> BootstrapMargins(std::span<const std::vector<ProblemPoint>> methods,
                                             std::span<const MethodPair> pairs,
                                             const BootstrapOptions& options) {
  size_t num_problems = 0;
  for (const auto& points : methods) {
    if (!points.empty()) num_problems = points.front().score.sums.size();
  }
  const auto fronts_of = [&](std::span<const double> weights) {
    std::vector<std::vector<CostPoint>> fronts;
    for (const auto& points : methods) fronts.push_back(ParetoFront(PointsOf(points, weights)));
    return fronts;
  };
  std::vector<std::vector<double>> drawn(pairs.size());
  for (const auto& times : DrawProblems(num_problems, options)) {
    const auto fronts = fronts_of(times);
    for (size_t i = 0; i < pairs.size(); ++i) {
      const auto margin = FrontMargin(fronts[pairs[i].a], fronts[pairs[i].b]);
      if (margin.has_value()) drawn[i].push_back(*margin);
    }
  }
  const auto fronts = fronts_of(std::vector<double>(num_problems, 1.0));
  std::vector<MarginEstimate> estimates;
  for (size_t i = 0; i < pairs.size(); ++i) {
    const auto& a = fronts[pairs[i].a];
    const auto& b = fronts[pairs[i].b];
    const auto with_margin = static_cast<double>(drawn[i].size());
    estimates.push_back({.margin = FrontMargin(a, b),
                         .costs = Overlap(a, b),
                         .interval = Percentiles(std::move(drawn[i]), options.confidence),
                         .none = options.resamples > 0 ? 1 - with_margin / options.resamples : 0});
  }
  return estimates;
}

}  // namespace ebb
