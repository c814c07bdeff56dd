#include <limits>
#include <numeric>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/policy/scorers.h"
#include "src/policy/scorers/shape_for_test.h"
#include "tests/support/numbers.h"

namespace ebb {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatEq;
using ::testing::Pointwise;

std::unique_ptr<Scorer> MakeAttention(Granularity granularity = Granularity::kToken) {
  return MakeAttentionScorer({.shape = kTwoLayers, .granularity = granularity});
}

GroupSignals Signals(const std::vector<float>& mass, int num_mass_heads, int num_layers_counted) {
  return {.mass = mass,
          .num_mass_heads = num_mass_heads,
          .num_rows = static_cast<int>(mass.size()) / num_mass_heads,
          .num_new_rows = 1,
          .num_layers_counted = num_layers_counted};
}

void AppendRows(Scorer* scorer, int group, Position first, int count) {
  std::vector<Position> positions(count);
  std::iota(positions.begin(), positions.end(), first);
  scorer->Append(group, positions);
}

TEST(AttentionScorer, DeclaresSummedMassOfDecodeStepsOnly) {
  const SignalNeeds needs = MakeAttention()->Needs();
  EXPECT_EQ(needs.mass, MassNeed::kSummed);
  EXPECT_FALSE(needs.mass_in_prefill);
  EXPECT_EQ(needs.num_recent_queries, 0);
  EXPECT_EQ(MakeAttention()->Name(), "attention");
}

// One event after another, with the scores of group 0 after it, computed by hand.
struct Event {
  enum class Kind { kAppend, kDecode, kPrefill, kRetain, kEndFirstPrefill } kind;
  int num_layers_counted;  // of 2
  const char* name;
  std::vector<float> mass;      // kDecode, kPrefill: [num_rows], summed over 2 layers x 4 heads
  std::vector<uint32_t> kept;   // kRetain
  std::vector<float> expected;  // scores after the event
};

TEST(AttentionScorer, FollowsTheTrace) {
  using enum Event::Kind;
  const Event trace[] = {
      {kAppend, 0, "rows begin at 0", {}, {}, {0}},
      {kAppend, 0, "another row", {}, {}, {0, 0}},
      {kPrefill, 2, "prefill adds nothing", {5, 3}, {}, {0, 0}},
      {kEndFirstPrefill, 0, "still nothing", {}, {}, {0, 0}},
      {kAppend, 0, "the token of the first decode step", {}, {}, {0, 0, 0}},
      {kDecode, 2, "mean over 8 heads", {4, 2, 2}, {}, {.5f, .25f, .25f}},
      {kDecode, 1, "a layer with NaN left out: mean over 4", {2, 1, 1}, {}, {1, .5f, .5f}},
      {kDecode, 0, "no layer is left", {0, 0, 0}, {}, {1, .5f, .5f}},
      {kDecode, 2, "a NaN that slipped through counts as 0", {kNan, 8, 0}, {}, {1, 1.5f, .5f}},
      {kRetain, 0, "the first row goes", {}, {1, 2}, {1.5f, .5f}},
      {kAppend, 0, "a new row begins at 0", {}, {}, {1.5f, .5f, 0}},
      {kDecode, 2, "scores go on", {8, 0, 16}, {}, {2.5f, .5f, 2}},
      {kRetain, 0, "roll-back to the first row", {}, {0}, {2.5f}},
      {kPrefill, 2, "a later user turn adds nothing", {8}, {}, {2.5f}},
  };
  const std::unique_ptr<Scorer> scorer = MakeAttention();
  Position next = 0;
  for (const Event& event : trace) {
    SCOPED_TRACE(event.name);
    const StepSignals step = {.kind =
                                  event.kind == kPrefill ? StepKind::kPrefill : StepKind::kDecode};
    switch (event.kind) {
      case kAppend:
        AppendRows(scorer.get(), 0, next++, 1);
        break;
      case kDecode:
      case kPrefill:
        scorer->ObserveGroup(0, Signals(event.mass, 1, event.num_layers_counted), step);
        break;
      case kRetain:
        scorer->Retain(0, event.kept);
        break;
      case kEndFirstPrefill:
        scorer->EndFirstPrefill();
        break;
    }
    EXPECT_THAT(scorer->Scores(0), Pointwise(FloatEq(), event.expected));
  }
}

TEST(AttentionScorer, EndOfTheFirstPrefillZeroesWhatWasThere) {
  const std::unique_ptr<Scorer> scorer = MakeAttention();
  AppendRows(scorer.get(), 0, 0, 1);
  scorer->ObserveGroup(0, Signals({8}, 1, 2), {});
  EXPECT_THAT(scorer->Scores(0), ElementsAre(1));
  scorer->EndFirstPrefill();
  EXPECT_THAT(scorer->Scores(0), ElementsAre(0));
}

TEST(AttentionScorer, IsTheMeanOverTheHeadsOfItsGroup) {
  struct Case {
    Granularity granularity;
    int group;
    float expected;  // of a mass of 4
  };
  const Case cases[] = {{Granularity::kLayer, 1, 1.0f},  // 4 query heads
                        {Granularity::kHead, 3, 2.0f}};  // 2 query heads
  for (const Case& c : cases) {
    const std::unique_ptr<Scorer> scorer = MakeAttention(c.granularity);
    AppendRows(scorer.get(), c.group, 0, 1);
    scorer->ObserveGroup(c.group, Signals({4}, 1, 1), {});
    EXPECT_THAT(scorer->Scores(c.group), ElementsAre(c.expected));
  }
}

TEST(AttentionScorer, LeavesLayersWithNanOutOfMassByHead) {
  // [2 layers x 2 kv heads, 2 rows]; another reader asked for mass per kv head.
  const std::vector<float> good = {1, 2, 3, 4, 5, 6, 7, 8};
  // Layers that do not count have no mass.
  const std::vector<float> one_bad = {0, 0, 0, 0, 5, 6, 7, 8};
  const std::vector<float> all_bad(8, 0.0f);
  const std::unique_ptr<Scorer> scorer = MakeAttention();
  AppendRows(scorer.get(), 0, 0, 2);
  scorer->ObserveGroup(0, Signals(good, 4, 2), {});
  EXPECT_THAT(scorer->Scores(0), ElementsAre(16 / 8.0f, 20 / 8.0f));
  scorer->ObserveGroup(0, Signals(one_bad, 4, 1), {});
  EXPECT_THAT(scorer->Scores(0), ElementsAre(2 + 12 / 4.0f, 2.5f + 14 / 4.0f));
  scorer->ObserveGroup(0, Signals(all_bad, 4, 0), {});
  EXPECT_THAT(scorer->Scores(0), ElementsAre(5, 6));
}

}  // namespace
}  // namespace ebb
