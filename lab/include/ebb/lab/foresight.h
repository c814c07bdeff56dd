// ReplayedAttention gives the policy "oracle" the amount of attention that the rows of a given text
// will receive, which it knows because a full cache has read the text before.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_LAB_FORESIGHT_H_
#define EBB_LAB_FORESIGHT_H_

#include <cstddef>
#include <span>
#include <vector>

#include "ebb/policy.h"
#include "ebb/signals.h"
#include "ebb/types.h"

namespace [[gnu::visibility("default")]] ebb {

// ReplayedAttention knows future attention from two runs of a full cache over the same tokens. The
// first run adds up the mass that every row receives:
//   total_i = sum over decode steps of the mean over layers without NaN and query heads of A[i]
// as in Eq. 1 of "Not All Thoughts Need HBM"; the mean is over the group's layers and heads. The
// second run subtracts the same numbers step by step, before a policy decides on the step, so that
// the rest is the sum over the later steps. Needs 8 bytes per group and token: 1.4 MiB for 90
// groups and 2,048 tokens, while the masses of every step would be 720 MiB.
//
// Thread safety: as a policy's.
class ReplayedAttention final : public Foresight {
 public:
  // Returns the signals that the full cache must provide, at the same granularity, for Add() and
  // Remove().
  [[nodiscard]] static SignalNeeds Needs() { return {.mass = MassNeed::kSummed}; }

  // Makes an object for which every row receives 0.
  ReplayedAttention() = default;
  // Forgets all attention and begins a new pair of runs.
  void Begin(const ModelShape& shape, Granularity granularity);
  // Adds the mass that a step of the first run gave to the rows at `positions` of a group.
  void Add(int group, std::span<const Position> positions, const GroupSignals& signals,
           const StepSignals& step);
  // Subtracts the mass that the same step gives in the second run.
  void Remove(int group, std::span<const Position> positions, const GroupSignals& signals,
              const StepSignals& step);

  void AttentionLeft(int group, std::span<const Position> positions,
                     std::span<float> left) const override;
  [[nodiscard]] size_t memory_bytes() const;

 private:
  void AddWeighted(double sign, int group, std::span<const Position> positions,
                   const GroupSignals& signals, const StepSignals& step);

  std::vector<int> query_heads_;           // [groups]: query heads of one layer
  std::vector<std::vector<double>> left_;  // [groups][positions]
};

}  // namespace ebb

#endif  // EBB_LAB_FORESIGHT_H_
