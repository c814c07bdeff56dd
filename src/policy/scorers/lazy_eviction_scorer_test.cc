#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/policy/scorers.h"

namespace ebb {
namespace {

class LazyEviction : public testing::Test {
 protected:
  // One step whose new rows come to the end; `active` rows get all that makes a row active.
  void Step(StepKind kind, int num_tokens, const std::vector<size_t>& active = {}) {
    std::vector<Position> positions(num_tokens);
    for (Position& position : positions) position = next_++;
    scorer_->Append(0, positions);
    std::vector<float> mass(next_, 0.0f);
    for (const size_t row : active) mass[row] = 1.0f;
    scorer_->ObserveGroup(0,
                          {.mass = mass,
                           .num_mass_heads = 1,
                           .num_rows = next_,
                           .num_new_rows = num_tokens,
                           .num_layers_counted = 1},
                          {.kind = kind, .num_tokens = num_tokens});
  }
  // New rows of a prompt that another sequence has read.
  void Take(int num_tokens) {
    std::vector<Position> positions(num_tokens);
    for (Position& position : positions) position = next_++;
    scorer_->Append(0, positions);
  }
  void ForgetAll() {
    scorer_->Retain(0, {});
    next_ = 0;
  }
  [[nodiscard]] float Score(size_t row) { return scorer_->Scores(0)[row]; }
  [[nodiscard]] std::vector<float> Scores() {
    return {scorer_->Scores(0).begin(), scorer_->Scores(0).end()};
  }

  std::unique_ptr<Scorer> scorer_ =
      MakeLazyEvictionScorer({.shape = {.num_layers = 1, .num_q_heads = 1, .num_kv_heads = 1}});
  Position next_ = 0;
};

// The interval of a row cannot be longer than its life.
TEST_F(LazyEviction, RowsOfALaterTurnBeginWithIt) {
  Step(StepKind::kPrefill, 2);
  for (int i = 0; i < 50; ++i) Step(StepKind::kDecode, 1);
  Step(StepKind::kPrefill, 3);  // rows 52 to 54
  Step(StepKind::kDecode, 1, {53, 55});
  EXPECT_EQ(Score(53), Score(55));
  EXPECT_GT(Score(53), Score(52));
}

TEST_F(LazyEviction, AFirstPromptCountsFromTheFirstStep) {
  Step(StepKind::kPrefill, 2);
  Step(StepKind::kDecode, 1, {1, 2});
  EXPECT_EQ(Score(1), Score(2));
}

TEST_F(LazyEviction, RowsThatAreTakenAreBornWhenThoseThatAreReadAre) {
  for (int i = 0; i < 50; ++i) Step(StepKind::kDecode, 1);
  ForgetAll();
  Step(StepKind::kPrefill, 3);
  Step(StepKind::kDecode, 1, {1});
  const std::vector<float> read = Scores();
  ForgetAll();
  Take(3);
  Step(StepKind::kDecode, 1, {1});
  EXPECT_EQ(Scores(), read);
}

}  // namespace
}  // namespace ebb
