// The attention that rows of a text will receive, where the text is there already: a full cache
// reads it before the policy "oracle" does.
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

// From two runs of a full cache over the same tokens. The first adds up what every row receives:
//   total_i = sum over decode steps of the mean over layers without NaN and query heads of A[i]
// as in Eq. 1 of "Not All Thoughts Need HBM"; the mean is over what belongs to the group. The
// second takes the same numbers away, step by step, before a policy decides on the step: what is
// left is the sum over the later steps. 8 bytes per group and token: 1.4 MiB for 90 groups and
// 2,048 tokens, where the masses of every step would be 720 MiB.
//
// Thread safety: as a policy's.
class ReplayedAttention final : public Foresight {
 public:
  // The mass that a full cache must show, at the same granularity, for Add() and Remove().
  [[nodiscard]] static SignalNeeds Needs() { return {.mass = MassNeed::kSummed}; }

  // Knows nothing: no row receives anything.
  ReplayedAttention() = default;
  // Forgets what it knew. The runs follow.
  void Begin(const ModelShape& shape, Granularity granularity);
  // What a step of the first run showed of a group whose rows are at `positions`.
  void Add(int group, std::span<const Position> positions, const GroupSignals& signals,
           const StepSignals& step);
  // What the second run showed is taken away.
  void Remove(int group, std::span<const Position> positions, const GroupSignals& signals,
              const StepSignals& step);

  void AttentionLeft(int group, std::span<const Position> positions,
                     std::span<float> left) const override;
  [[nodiscard]] size_t memory_bytes() const;

 private:
  void AddWeighted(double sign, int group, std::span<const Position> positions,
                   const GroupSignals& signals, const StepSignals& step);

  std::vector<int> query_heads_;           // [groups]: of one layer
  std::vector<std::vector<double>> left_;  // [groups][positions]
};

}  // namespace ebb

#endif  // EBB_LAB_FORESIGHT_H_
