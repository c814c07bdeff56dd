// Scores rows at random, as a control: a row has a uniform number in [0, 1) that depends on (seed,
// group, position) alone, so that neither the order of the steps nor a roll-back changes it.
#include <fmt/format.h>

#include "src/policy/scorers/column_scorer.h"

namespace ebb {
namespace {

// Hashes a number with the finaliser of SplitMix64 (Steele, Lea and Flood, 2014).
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

class RandomScorer final : public ColumnScorer {
 public:
  explicit RandomScorer(const ScorerContext& context)
      : ColumnScorer(context), seed_(context.seed) {}

  std::string Name() const override { return fmt::format("random:seed={}", seed_); }
  bool IgnoresPrompts() const override { return true; }
  SignalNeeds Needs() const override { return {}; }

 protected:
  void InitRows(int group, std::span<const Position> positions) override {
    const uint64_t group_seed = Mix(Mix(seed_) ^ static_cast<uint64_t>(group));
    const std::span<float> scores = scores_[group].last(positions.size());
    for (size_t i = 0; i < positions.size(); ++i) {
      const uint64_t bits = Mix(group_seed ^ static_cast<uint64_t>(positions[i]));
      scores[i] = static_cast<float>(bits >> 40) * 0x1p-24f;  // 24 bits: every one is a float
    }
  }

 private:
  const uint64_t seed_;
};

}  // namespace

std::unique_ptr<Scorer> MakeRandomScorer(const ScorerContext& context) {
  return std::make_unique<RandomScorer>(context);
}

}  // namespace ebb
