// Declares the base of scorers that cut a thought into segments. It knows each row's segment, and
// whether the budget of the segment has room for the row. A row with room scores its rank within
// [0, 1); a row without room scores its rank - 1, which is below 0. AttentionSegmentScorer adds the
// rank that most of these scorers use: cumulative attention.
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
  // Returns the density of one query head's attention, from 0 (one row receives all) to 1. Several
  // threads call it at once.
  [[nodiscard]] virtual float Density(std::span<const float> mass) const = 0;
  // Chooses, by KeepHighest(), the rows that keep their room, after segments were closed: those
  // from `first_new` to segments(group).num_closed() - 1.
  virtual void ChooseRows(int group, int first_new) = 0;
  // Notifies the scorer that a roll-back opened segments again, so that only `num_closed` are
  // closed.
  virtual void Reopen(int /*group*/, int /*num_closed*/) {}
  // Adds the mass that the step's heads gave these rows. Several threads call it at once, each for
  // rows of its own.
  virtual void TakeMassOfRows(int /*group*/, const GroupSignals& /*signals*/, RowRange /*rows*/) {}
  // Returns a finite rank for each row of the group; rows with higher ranks are kept longer.
  [[nodiscard]] virtual std::span<const float> Ranks(int group) = 0;
  // Maps a rank to [0, 1), monotonically.
  [[nodiscard]] virtual float Squashed(float rank) const { return rank / (1.0f + rank); }

  [[nodiscard]] const Segments& segments(int group) const { return segments_[group]; }
  // Returns the surviving rows of a segment.
  [[nodiscard]] RowRange RowsOf(int group, int segment) const;
  // Marks all of these rows except the `count` rows with the highest ranks as having no room.
  void KeepHighest(int group, const RowRange& rows, size_t count);
  [[nodiscard]] std::span<float> rooms(int group) { return rooms_[group]; }  // 1, or 0: no room

 private:
  // Removes the records from position `end` on, at which the step begins after a roll-back.
  void TakeBack(int group, Position end);
  // Passes the step's mass to TakeMassOfRows() and returns the mean density over the heads that
  // have mass.
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
