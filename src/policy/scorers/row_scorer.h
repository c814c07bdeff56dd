// A scorer that keeps a score per row, and what several of them do with the mass of a step.
#ifndef EBB_POLICY_SCORERS_ROW_SCORER_H_
#define EBB_POLICY_SCORERS_ROW_SCORER_H_

#include <cassert>
#include <span>
#include <vector>

#include "ebb/policy.h"
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
  void Expect(int group) const override { scores_.Expect(group); }
  Status SaveState(StateWriter* to) const override { return scores_.Save(to); }
  Status LoadState(StateReader* from) override { return scores_.Load(from); }

 protected:
  RowScores scores_;
};

// The same with one more number per row, `beside_`, which stands behind the scores in a saved
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
  void Expect(int group) const override {
    RowScorer::Expect(group);
    beside_.Expect(group);
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

// The mass of one head; several when somebody asked for mass by head, although a sum was wanted.
inline std::span<const float> MassOfHead(const GroupSignals& signals, int head) {
  const size_t num_rows = signals.num_rows;
  return signals.mass.subspan(head * num_rows, num_rows);
}

// As AddMeanMass(), of the rows from `first_row` on that `to` has numbers for.
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

// One array of mass: the sum over the heads where there are several.
inline std::span<const float> SummedMass(const GroupSignals& signals, std::vector<float>* sum) {
  if (signals.num_mass_heads == 1) return signals.mass;
  sum->assign(signals.num_rows, 0.0f);
  for (int head = 0; head < signals.num_mass_heads; ++head) {
    AddMass(MassOfHead(signals, head), 1.0f, *sum);
  }
  return *sum;
}

// Whether a step shows what rows received from the model's own tokens.
inline bool ShowsDecodeMass(const GroupSignals& signals, const StepSignals& step) {
  return step.kind == StepKind::kDecode && !signals.mass.empty() && signals.num_layers_counted > 0;
}

}  // namespace ebb

#endif  // EBB_POLICY_SCORERS_ROW_SCORER_H_
