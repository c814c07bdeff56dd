// Scores rows by ThinKV (Ramachandran et al., 2026) as "EpiKV" (002, 4.3 and App. D) evaluates it,
// and by its hybrid. No code was found for either; segments.h describes how thoughts are cut and
// typed. tau is 128. A reasoning segment keeps 64 rows, an execution segment 32, a transition
// segment 8, so that fewer rows than the budget may be left.
//   thinkv       the rows of a segment with the most cumulative attention ("Not All Thoughts Need
//                HBM", Eq. 1) stay [ours]
//   segment_hs   those with the highest z_10 - z_21 of epikv stay ("+ HS rank"; which rank it is
//                and how they are combined is ours)
// Density is the entropy of the attention over the log of the rows, mean over layers and query
// heads (R/E/T by entropy). At head granularity a segment is typed head by head.
#include <fmt/format.h>

#include <cmath>

#include "src/policy/score_loops.h"
#include "src/policy/scorers/segment_scorer.h"

namespace ebb {
namespace {

constexpr int kDefaultTau = 128;
constexpr int kDefaultBudgets[] = {64, 32, 8};  // by Thought

// Returns 0 if one row has all the mass, up to 1 if all rows have the same.
float NormalisedEntropy(std::span<const float> mass) {
  if (mass.size() < 2) return 0;
  return EntropyBits(mass) / std::log2(static_cast<float>(mass.size()));
}

// EntropySegmentScorer types segments by entropy and has a budget for each type; `Base` ranks the
// rows of a segment.
template <typename Base>
class EntropySegmentScorer : public Base {
 public:
  EntropySegmentScorer(const ScorerContext& context, std::string_view name)
      : Base(context, context.params.Int("tau", kDefaultTau)),
        budgets_{context.params.Int("reasoning", kDefaultBudgets[0]),
                 context.params.Int("execution", kDefaultBudgets[1]),
                 context.params.Int("transition", kDefaultBudgets[2])},
        name_(fmt::format("{}:tau={},budgets={}/{}/{}", name,
                          context.params.Int("tau", kDefaultTau), budgets_[0], budgets_[1],
                          budgets_[2])) {}

  std::string Name() const override { return name_; }

 protected:
  float Density(std::span<const float> mass) const override { return NormalisedEntropy(mass); }

  void ChooseRows(int group, int first_new) override {
    const Segments& segments = this->segments(group);
    for (int segment = first_new; segment < segments.num_closed(); ++segment) {
      const auto type = static_cast<size_t>(segments.TypeOf(segment));
      this->KeepHighest(group, this->RowsOf(group, segment), budgets_[type]);
    }
  }

 private:
  const int budgets_[3];  // rows, by Thought
  const std::string name_;
};

using ThinkvScorer = EntropySegmentScorer<AttentionSegmentScorer>;

class SegmentHsScorer final : public EntropySegmentScorer<SegmentScorer> {
 public:
  explicit SegmentHsScorer(const ScorerContext& context)
      : EntropySegmentScorer(context, "segment_hs"), hidden_(this, MakeEpikvScorer(context)) {}

  std::string Name() const override {
    return fmt::format("{},{}", EntropySegmentScorer::Name(), hidden_->Name());
  }
  SignalNeeds Needs() const override { return Union(SegmentScorer::Needs(), hidden_->Needs()); }
  void Observe(std::span<const GroupSignals> groups, const StepSignals& step) override {
    hidden_->Observe(groups, step);
    SegmentScorer::Observe(groups, step);
  }

 protected:
  std::span<const float> Ranks(int group) override { return hidden_->Scores(group); }
  float Squashed(float rank) const override { return 1.0f / (1.0f + std::exp(-rank)); }

 private:
  const InnerScorer hidden_;
};

}  // namespace

std::unique_ptr<Scorer> MakeThinkvScorer(const ScorerContext& context) {
  return std::make_unique<ThinkvScorer>(context, "thinkv");
}
std::unique_ptr<Scorer> MakeSegmentHsScorer(const ScorerContext& context) {
  return std::make_unique<SegmentHsScorer>(context);
}

}  // namespace ebb
