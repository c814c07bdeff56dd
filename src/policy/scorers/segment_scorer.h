// The base of scorers that cut a thought into segments: which segment a row is of, whether its
// segment's budget has room for it, and a rank within [0, 1). A row that has no room scores its
// rank - 1, below 0. Beside that, the rank that most of them have: cumulative attention.
#ifndef EBB_POLICY_SCORERS_SEGMENT_SCORER_H_
#define EBB_POLICY_SCORERS_SEGMENT_SCORER_H_

#include <span>
#include <utility>
#include <vector>

#include "src/policy/scorers/column_scorer.h"
#include "src/policy/scorers/segments.h"
#include "src/policy/selection.h"

namespace ebb {

class SegmentScorer : public ColumnScorer {
 public:
  SegmentScorer(const ScorerContext& context, int tau);

  SignalNeeds Needs() const override { return {.mass = MassNeed::kPerQueryHead}; }
  void ObserveGroup(int group, const GroupSignals& signals, const StepSignals& step) override;
  std::span<const float> Scores(int group) override;

 protected:
  void InitRows(int group, std::span<const Position> positions) override;
  void CheckLoaded(StateReader* from) const override;
  // How many of the rows of one query head's attention matter, from 0 to 1. Called by several
  // threads at once.
  [[nodiscard]] virtual float Density(std::span<const float> mass) const = 0;
  // Segments were closed: those up to segments(group).num_closed(), from `first_new` on just now.
  virtual void ChooseRows(int group, int first_new) = 0;
  // A roll-back left so many segments closed, fewer than there were.
  virtual void Reopen(int /*group*/, int /*num_closed*/) {}
  // Takes the mass that the heads of a step gave these rows. Called by several threads at once,
  // each with rows of its own.
  virtual void TakeMassOfRows(int /*group*/, const GroupSignals& /*signals*/, RowRange /*rows*/) {}
  // A finite number; the higher, the longer it is kept.
  [[nodiscard]] virtual std::span<const float> Ranks(int group) = 0;
  // A rank within [0, 1), ascending with it.
  [[nodiscard]] virtual float Squashed(float rank) const { return rank / (1.0f + rank); }

  [[nodiscard]] const Segments& segments(int group) const { return segments_[group]; }
  // The rows of a segment that are alive.
  [[nodiscard]] RowRange RowsOf(int group, int segment) const;
  // All of these rows but the `count` of the highest rank have no room from now on.
  void KeepHighest(int group, const RowRange& rows, size_t count);
  [[nodiscard]] std::span<float> rooms(int group) { return rooms_[group]; }  // 1, or 0: no room

 private:
  // The step begins at position `end`: what was known from there on was taken back.
  void TakeBack(int group, Position end);
  // Returns the mean density over the heads that have mass.
  float TakeMass(int group, const GroupSignals& signals);

  const RunParts run_parts_;
  std::vector<float> densities_;  // by query head of the step
  Column<float> ids_{this}, rooms_{this};
  SavedList<Segments> segments_;  // [num_groups]
  RowSelection selection_;
};

class AttentionSegmentScorer : public SegmentScorer {
 public:
  using SegmentScorer::SegmentScorer;

  void EndFirstPrefill() override { attention_.SetAllToZero(); }

 protected:
  void TakeMassOfRows(int group, const GroupSignals& signals, RowRange rows) override;
  [[nodiscard]] std::span<const float> Ranks(int group) override { return attention_[group]; }

 private:
  Column<float> attention_{this};
};

}  // namespace ebb

#endif  // EBB_POLICY_SCORERS_SEGMENT_SCORER_H_
