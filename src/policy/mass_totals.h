// The mass that rows receive, step after step, and its totals per row: the sum of
// "Not All Thoughts Need HBM" (Eq. 1), which is kept in step with the rows.
#ifndef EBB_POLICY_MASS_TOTALS_H_
#define EBB_POLICY_MASS_TOTALS_H_

#include <cassert>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ebb/signals.h"
#include "src/base/attention_layout.h"
#include "src/policy/row_scores.h"
#include "src/policy/score_loops.h"

namespace ebb {

// The mass of one head; several if another reader asked for mass by head, although a sum was
// wanted.
inline std::span<const float> MassOfHead(const GroupSignals& signals, int head) {
  const size_t num_rows = signals.num_rows;
  return signals.mass.subspan(head * num_rows, num_rows);
}

// Returns one array of mass: the sum over the heads, in `sum`, if there are several.
inline std::span<const float> SummedMass(const GroupSignals& signals, std::vector<float>* sum) {
  if (signals.num_mass_heads == 1) return signals.mass;
  sum->assign(signals.num_rows, 0.0f);
  for (int head = 0; head < signals.num_mass_heads; ++head) {
    AddMass(MassOfHead(signals, head), 1.0f, *sum);
  }
  return *sum;
}

// AddMeanMass() for the rows from `first_row` on that `to` has numbers for.
inline void AddMeanMassOfRows(const GroupSignals& signals, int query_heads_per_layer,
                              size_t first_row, std::span<float> to) {
  assert(first_row + to.size() <= static_cast<size_t>(signals.num_rows));
  const float weight = 1.0f / (static_cast<float>(signals.num_layers_counted) *
                               static_cast<float>(query_heads_per_layer));
  for (int head = 0; head < signals.num_mass_heads; ++head) {
    AddMass(MassOfHead(signals, head).subspan(first_row, to.size()), weight, to);
  }
}

// Adds the mean of the mass over the layers that count and their query heads. REQUIRES: some count.
inline void AddMeanMass(const GroupSignals& signals, int query_heads_per_layer,
                        std::span<float> to) {
  assert(to.size() == static_cast<size_t>(signals.num_rows));
  AddMeanMassOfRows(signals, query_heads_per_layer, 0, to);
}

// Whether a step shows what rows received from the model's own tokens.
inline bool ShowsDecodeMass(const GroupSignals& signals, const StepSignals& step) {
  return step.kind == StepKind::kDecode && !signals.mass.empty() && signals.num_layers_counted > 0;
}

// Adds the step's mean mass, where it is a decode step that shows any.
inline void AddDecodeMass(const GroupSignals& signals, const StepSignals& step,
                          int query_heads_per_layer, std::span<float> to) {
  if (ShowsDecodeMass(signals, step)) AddMeanMass(signals, query_heads_per_layer, to);
}

// MassTotal::kDecodeSum, group by group, for a scorer that takes totals.
class MassTotals {
 public:
  explicit MassTotals(const AttentionLayout& layout)
      : layout_(layout), totals_(layout.num_groups()) {}

  void Append(int group, size_t num_rows) { totals_.Append(group, num_rows); }
  void Add(int group, const GroupSignals& signals, const StepSignals& step) {
    AddDecodeMass(signals, step, layout_.QueryHeadsOf(group), totals_[group]);
  }
  // Only the rows at these ascending indices survive.
  void Retain(int group, std::span<const uint32_t> kept) { totals_.Retain(group, kept); }
  void EndFirstPrefill() { totals_.SetAllToZero(); }
  // Sets the totals of a resumed scorer. REQUIRES: the group has no rows.
  void Resume(int group, std::span<const float> scores);
  void Prefetch(int group) const { totals_.Prefetch(group); }  // see Scorer
  [[nodiscard]] std::span<const float> operator[](int group) const { return totals_[group]; }

 private:
  const AttentionLayout layout_;
  RowScores totals_;
};

}  // namespace ebb

#endif  // EBB_POLICY_MASS_TOTALS_H_
