// Sums up the mass (attention) that rows receive, step after step: Eq. 1 of "Not All Thoughts Need
// HBM". The totals gain and lose rows together with the cache.
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

// Returns the mass of one head, [num_rows]. There may be several heads even if a scorer asked for
// their sum, because another reader asked for mass per head.
inline std::span<const float> MassOfHead(const GroupSignals& signals, int head) {
  const size_t num_rows = signals.num_rows;
  return signals.mass.subspan(head * num_rows, num_rows);
}

// Returns the sum of the mass over the heads, [num_rows]. Computes it in `sum` if there are several
// heads; the returned span may point into `sum`.
inline std::span<const float> SummedMass(const GroupSignals& signals, std::vector<float>* sum) {
  if (signals.num_mass_heads == 1) return signals.mass;
  sum->assign(signals.num_rows, 0.0f);
  for (int head = 0; head < signals.num_mass_heads; ++head) {
    AddMass(MassOfHead(signals, head), 1.0f, *sum);
  }
  return *sum;
}

// Adds the mean mass, as AddMeanMass() does, of the `to.size()` rows from `first_row` on.
inline void AddMeanMassOfRows(const GroupSignals& signals, int query_heads_per_layer,
                              size_t first_row, std::span<float> to) {
  assert(first_row + to.size() <= static_cast<size_t>(signals.num_rows));
  const float weight = 1.0f / (static_cast<float>(signals.num_layers_counted) *
                               static_cast<float>(query_heads_per_layer));
  for (int head = 0; head < signals.num_mass_heads; ++head) {
    AddMass(MassOfHead(signals, head).subspan(first_row, to.size()), weight, to);
  }
}

// Adds each row's mass to `to` [num_rows], as the mean over the counted layers and their query
// heads. REQUIRES: signals.num_layers_counted > 0.
inline void AddMeanMass(const GroupSignals& signals, int query_heads_per_layer,
                        std::span<float> to) {
  assert(to.size() == static_cast<size_t>(signals.num_rows));
  AddMeanMassOfRows(signals, query_heads_per_layer, 0, to);
}

// Returns whether this is a decode step with mass from at least one layer; mass of prefill steps
// does not count.
inline bool ShowsDecodeMass(const GroupSignals& signals, const StepSignals& step) {
  return step.kind == StepKind::kDecode && !signals.mass.empty() && signals.num_layers_counted > 0;
}

// Adds the step's mean mass to `to` [num_rows] if ShowsDecodeMass(); otherwise changes nothing.
inline void AddDecodeMass(const GroupSignals& signals, const StepSignals& step,
                          int query_heads_per_layer, std::span<float> to) {
  if (ShowsDecodeMass(signals, step)) AddMeanMass(signals, query_heads_per_layer, to);
}

// MassTotals keeps MassTotal::kDecodeSum for each row of each group, for a scorer that uses nothing
// else (Scorer::Total()).
class MassTotals {
 public:
  explicit MassTotals(const AttentionLayout& layout)
      : layout_(layout), totals_(layout.num_groups()) {}

  void Append(int group, size_t num_rows) { totals_.Append(group, num_rows); }
  void Add(int group, const GroupSignals& signals, const StepSignals& step) {
    AddDecodeMass(signals, step, layout_.QueryHeadsOf(group), totals_[group]);
  }
  // Removes all rows of the group except those at the ascending indices `kept`.
  void Retain(int group, std::span<const uint32_t> kept) { totals_.Retain(group, kept); }
  void EndFirstPrefill() { totals_.SetAllToZero(); }
  // Sets the totals of a group from the saved scores of a resumed scorer. REQUIRES: the group has
  // no rows.
  void Resume(int group, std::span<const float> scores);
  void Prefetch(int group) const { totals_.Prefetch(group); }  // see Scorer
  [[nodiscard]] std::span<const float> operator[](int group) const { return totals_[group]; }

 private:
  const AttentionLayout layout_;
  RowScores totals_;
};

}  // namespace ebb

#endif  // EBB_POLICY_MASS_TOTALS_H_
