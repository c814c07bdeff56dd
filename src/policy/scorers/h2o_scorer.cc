// H2O (Zhang et al., 2023, as in its published code): the mass that a row received from all queries
// so far, those of prefill included, summed over the query heads of its group:
//   s_i += sum over queries and heads of A[i]
#include "src/policy/row_scores.h"
#include "src/policy/score_loops.h"
#include "src/policy/scorers.h"

namespace ebb {
namespace {

class H2oScorer final : public Scorer {
 public:
  explicit H2oScorer(const ScorerContext& context) : scores_(context.NumGroups()) {}

  std::string Name() const override { return "h2o"; }
  SignalNeeds Needs() const override {
    return {.mass = MassNeed::kSummed, .mass_in_prefill = true};
  }
  void Append(int group, std::span<const Position> positions) override {
    scores_.Append(group, positions.size());
  }

  void Observe(int group, const GroupSignals& signals, const StepSignals&) override {
    if (signals.mass.empty()) return;
    const size_t num_rows = signals.num_rows;
    for (int head = 0; head < signals.num_mass_heads; ++head) {
      AddMass(signals.mass.subspan(head * num_rows, num_rows), 1.0f, scores_[group]);
    }
  }

  void Retain(int group, std::span<const uint32_t> kept) override { scores_.Retain(group, kept); }
  std::span<const float> Scores(int group) override { return scores_[group]; }
  void Expect(int group) const override { scores_.Expect(group); }
  Status SaveState(StateWriter* to) const override { return scores_.Save(to); }
  Status LoadState(StateReader* from) override { return scores_.Load(from); }

 private:
  RowScores scores_;
};

}  // namespace

std::unique_ptr<Scorer> MakeH2oScorer(const ScorerContext& context) {
  return std::make_unique<H2oScorer>(context);
}

}  // namespace ebb
