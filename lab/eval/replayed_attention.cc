#include <algorithm>
#include <cmath>

#include "ebb/lab/foresight.h"

namespace ebb {

void ReplayedAttention::Begin(const ModelShape& shape, Granularity granularity) {
  const auto num_groups = static_cast<size_t>(shape.NumGroups(granularity));
  query_heads_.assign(num_groups, shape.num_q_heads);
  if (granularity == Granularity::kHead) {
    query_heads_.clear();
    for (int layer = 0; layer < shape.num_layers; ++layer) {
      query_heads_.insert(query_heads_.end(), shape.NumKvHeads(layer),
                          shape.QueryHeadsPerKvHead(layer));
    }
  }
  left_.assign(num_groups, {});
}

void ReplayedAttention::Add(int group, std::span<const Position> positions,
                            const GroupSignals& signals, const StepSignals& step) {
  AddWeighted(1, group, positions, signals, step);
}

void ReplayedAttention::Remove(int group, std::span<const Position> positions,
                               const GroupSignals& signals, const StepSignals& step) {
  AddWeighted(-1, group, positions, signals, step);
}

// Adds the step's mass, times `sign`. Sums are in double, because the rest after thousands of steps
// is a small difference of large sums.
void ReplayedAttention::AddWeighted(double sign, int group, std::span<const Position> positions,
                                    const GroupSignals& signals, const StepSignals& step) {
  if (step.kind != StepKind::kDecode || signals.mass.empty()) return;
  if (signals.num_layers_counted == 0 || positions.empty()) return;
  const double weight = sign / (double(signals.num_layers_counted) * query_heads_[group]);
  std::vector<double>& left = left_[group];
  left.resize(std::max(left.size(), static_cast<size_t>(positions.back()) + 1));
  for (int head = 0; head < signals.num_mass_heads; ++head) {
    const auto mass = signals.mass.subspan(head * positions.size(), positions.size());
    for (size_t row = 0; row < positions.size(); ++row) {
      if (std::isfinite(mass[row])) left[positions[row]] += weight * mass[row];
    }
  }
}

void ReplayedAttention::AttentionLeft(int group, std::span<const Position> positions,
                                      std::span<float> left) const {
  std::ranges::fill(left, 0.0f);
  if (left_.empty()) return;
  const std::vector<double>& known = left_[group];
  for (size_t row = 0; row < positions.size(); ++row) {
    const auto position = static_cast<size_t>(positions[row]);
    // Rounding may give slightly negative numbers, which count as 0.
    if (position < known.size()) left[row] = static_cast<float>(std::max(0.0, known[position]));
  }
}

size_t ReplayedAttention::memory_bytes() const {
  size_t bytes = left_.capacity() * sizeof(left_[0]);
  for (const std::vector<double>& of_group : left_) bytes += of_group.capacity() * sizeof(double);
  return bytes;
}

}  // namespace ebb
