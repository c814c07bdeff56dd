// A scorer that keeps a score per row, and what several of them do with the mass of a step.
#ifndef EBB_POLICY_SCORERS_ROW_SCORER_H_
#define EBB_POLICY_SCORERS_ROW_SCORER_H_

#include <span>
#include <vector>

#include "ebb/policy.h"
#include "src/policy/mass_totals.h"
#include "src/policy/row_scores.h"
#include "src/policy/score_loops.h"
#include "src/policy/scorers.h"

namespace ebb {

class RowScorer : public Scorer {
 public:
  explicit RowScorer(const ScorerContext& context) : scores_(context.NumGroups()) {}

  void Append(int group, std::span<const Position> positions) override {
    scores_.Append(group, positions.size());
  }
  void Retain(int group, std::span<const uint32_t> kept) override { scores_.Retain(group, kept); }
  std::span<const float> Scores(int group) override { return scores_[group]; }
  void Prefetch(int group) const override { scores_.Prefetch(group); }
  Status SaveState(StateWriter* to) const override { return scores_.Save(to); }
  Status LoadState(StateReader* from) override { return scores_.Load(from); }

 protected:
  RowScores scores_;
};

// A RowScorer with one more number per row, `beside_`, which stands behind the scores in a saved
// state.
template <typename T>
class RowScorerWith : public RowScorer {
 public:
  explicit RowScorerWith(const ScorerContext& context)
      : RowScorer(context), beside_(context.NumGroups()), num_groups_(context.NumGroups()) {}

  void Append(int group, std::span<const Position> positions) override {
    RowScorer::Append(group, positions);
    beside_.Append(group, positions.size());
  }
  void Retain(int group, std::span<const uint32_t> kept) override {
    RowScorer::Retain(group, kept);
    beside_.Retain(group, kept);
  }
  void Prefetch(int group) const override {
    RowScorer::Prefetch(group);
    beside_.Prefetch(group);
  }
  Status SaveState(StateWriter* to) const override {
    EBB_RETURN_IF_ERROR(RowScorer::SaveState(to));
    return beside_.Save(to);
  }
  Status LoadState(StateReader* from) override {
    EBB_RETURN_IF_ERROR(RowScorer::LoadState(from));
    EBB_RETURN_IF_ERROR(beside_.Load(from));
    for (int group = 0; group < num_groups_; ++group) {
      if (beside_.num_rows(group) != scores_.num_rows(group)) from->Fail("scores without rows");
    }
    return from->status();
  }

 protected:
  RowValues<T> beside_;

 private:
  const int num_groups_;
};

// A list that was saved with as many numbers as there are.
template <typename T>
Status LoadList(StateReader* from, std::vector<T>* list) {
  const std::vector<T> loaded = from->Numbers<T>();
  if (loaded.size() != list->size()) {
    from->Fail("a list of another length");
  } else {
    *list = loaded;
  }
  return from->status();
}

// One array of mass: the sum over the heads where there are several.
inline std::span<const float> SummedMass(const GroupSignals& signals, std::vector<float>* sum) {
  if (signals.num_mass_heads == 1) return signals.mass;
  sum->assign(signals.num_rows, 0.0f);
  for (int head = 0; head < signals.num_mass_heads; ++head) {
    AddMass(MassOfHead(signals, head), 1.0f, *sum);
  }
  return *sum;
}

}  // namespace ebb

#endif  // EBB_POLICY_SCORERS_ROW_SCORER_H_
