#include <limits>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/policy/scorers.h"
#include "src/policy/scorers/shape_for_test.h"

namespace ebb {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

std::unique_ptr<Scorer> MakeH2o() {
  return MakeH2oScorer({.shape = kTwoLayers, .granularity = Granularity::kHead});
}

TEST(H2oScorer, DeclaresSummedMassOfPrefillToo) {
  EXPECT_EQ(MakeH2o()->Needs().mass, MassNeed::kSummed);
  EXPECT_TRUE(MakeH2o()->Needs().mass_in_prefill);
  EXPECT_EQ(MakeH2o()->Name(), "h2o");
}

// One step after another with the scores of the group after it, computed by hand.
struct TraceStep {
  const char* name;
  StepKind kind;
  std::vector<Position> appended;
  std::vector<float> mass;
  std::vector<float> expected;
};

TEST(H2oScorer, FollowsTheTrace) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const TraceStep trace[] = {
      {"prefill counts", StepKind::kPrefill, {0, 1, 2}, {3, 2, 1}, {3, 2, 1}},
      {"the new row counts in its own step", StepKind::kDecode, {3}, {1, 0, 0, 1}, {4, 2, 1, 1}},
      {"a NaN counts as 0", StepKind::kDecode, {4}, {nan, 1, 0, 0, 1}, {4, 3, 1, 1, 1}},
      {"a later prefill counts too",
       StepKind::kPrefill,
       {5},
       {1, 1, 1, 1, 1, 1},
       {5, 4, 2, 2, 2, 1}},
      {"no mass, no change", StepKind::kDecode, {6}, {}, {5, 4, 2, 2, 2, 1, 0}},
  };
  const std::unique_ptr<Scorer> scorer = MakeH2o();
  for (const TraceStep& step : trace) {
    SCOPED_TRACE(step.name);
    scorer->Append(2, step.appended);
    scorer->ObserveGroup(2,
                         {.mass = step.mass,
                          .num_mass_heads = 1,
                          .num_rows = static_cast<int>(step.mass.size()),
                          .num_layers_counted = 1},
                         {.kind = step.kind});
    scorer->EndFirstPrefill();  // means nothing to H2O
    EXPECT_THAT(scorer->Scores(2), ElementsAreArray(step.expected));
  }
  scorer->Retain(2, std::vector<uint32_t>{0, 5, 6});
  EXPECT_THAT(scorer->Scores(2), ElementsAre(5, 1, 0));
  EXPECT_TRUE(scorer->Scores(1).empty());
}

TEST(H2oScorer, SumsMassThatSomebodyElseWantedByHead) {
  const std::unique_ptr<Scorer> scorer = MakeH2o();
  scorer->Append(0, std::vector<Position>{0, 1});
  const std::vector<float> mass = {1, 2, 10, 20};  // [2 query heads, 2 rows]
  scorer->ObserveGroup(0, {.mass = mass, .num_mass_heads = 2, .num_rows = 2}, {});
  EXPECT_THAT(scorer->Scores(0), ElementsAre(11, 22));
}

}  // namespace
}  // namespace ebb
