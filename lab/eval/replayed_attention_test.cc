#include <limits>
#include <numeric>

#include "ebb/lab/foresight.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebb {
namespace {

using ::testing::ElementsAre;

constexpr ModelShape kShape = {.num_layers = 2, .num_q_heads = 4, .num_kv_heads = 2};
constexpr StepSignals Decode() { return {.kind = StepKind::kDecode, .num_tokens = 1}; }

std::vector<Position> FirstPositions(size_t count) {
  std::vector<Position> positions(count);
  std::iota(positions.begin(), positions.end(), 0);
  return positions;
}

std::vector<float> Left(const ReplayedAttention& replay, int group, size_t count) {
  std::vector<float> left(count, -1.0f);
  replay.AttentionLeft(group, FirstPositions(count), left);
  return left;
}

// Shown is the mass of a step, summed over the heads of a group at granularity kLayer.
struct Shown {
  std::vector<float> mass;
  int num_layers_counted = 1;

  [[nodiscard]] GroupSignals Signals() const {
    return {.mass = mass,
            .num_mass_heads = 1,
            .num_rows = static_cast<int>(mass.size()),
            .num_new_rows = 1,
            .num_layers_counted = num_layers_counted};
  }
};

TEST(ReplayedAttention, WhatIsLeftIsTheSumOverTheLaterSteps) {
  ReplayedAttention replay;
  replay.Begin(kShape, Granularity::kLayer);
  const std::vector<Shown> steps = {{{4, 0}}, {{1, 2, 1}}, {{0, 0, 2, 2}}};
  for (const Shown& s : steps) {
    replay.Add(1, FirstPositions(s.mass.size()), s.Signals(), Decode());
  }
  EXPECT_THAT(Left(replay, 1, 5), ElementsAre(1.25f, 0.5f, 0.75f, 0.5f, 0));
  EXPECT_THAT(Left(replay, 0, 2), ElementsAre(0, 0)) << "another group";
  replay.Remove(1, FirstPositions(2), steps[0].Signals(), Decode());
  EXPECT_THAT(Left(replay, 1, 4), ElementsAre(0.25f, 0.5f, 0.75f, 0.5f));
  replay.Remove(1, FirstPositions(3), steps[1].Signals(), Decode());
  EXPECT_THAT(Left(replay, 1, 4), ElementsAre(0, 0, 0.5f, 0.5f));
  replay.Remove(1, FirstPositions(4), steps[2].Signals(), Decode());
  EXPECT_THAT(Left(replay, 1, 4), ElementsAre(0, 0, 0, 0));
}

// After a million steps that add a thousandth each, the last step's share is still there.
TEST(ReplayedAttention, ManySmallSharesDoNotDrownTheLast) {
  ReplayedAttention replay;
  replay.Begin(kShape, Granularity::kLayer);
  const Shown small = {{0.0123f}};
  const Shown last = {{4e-6f}};
  constexpr int kSteps = 1'000'000;
  for (int i = 0; i < kSteps; ++i) replay.Add(0, FirstPositions(1), small.Signals(), Decode());
  replay.Add(0, FirstPositions(1), last.Signals(), Decode());
  for (int i = 0; i < kSteps; ++i) replay.Remove(0, FirstPositions(1), small.Signals(), Decode());
  EXPECT_NEAR(Left(replay, 0, 1)[0], 1e-6, 1e-9);
}

TEST(ReplayedAttention, PrefillAndWhatIsNoNumberCountForNothing) {
  ReplayedAttention replay;
  replay.Begin(kShape, Granularity::kLayer);
  const Shown shown = {{std::numeric_limits<float>::quiet_NaN(), 4}};
  replay.Add(0, FirstPositions(2), shown.Signals(), {.kind = StepKind::kPrefill, .num_tokens = 2});
  EXPECT_THAT(Left(replay, 0, 2), ElementsAre(0, 0));
  replay.Add(0, FirstPositions(2), Shown{{4, 4}, 0}.Signals(), Decode());
  EXPECT_THAT(Left(replay, 0, 2), ElementsAre(0, 0)) << "no layer counts";
  replay.Add(0, FirstPositions(2), shown.Signals(), Decode());
  EXPECT_THAT(Left(replay, 0, 2), ElementsAre(0, 1));
}

TEST(ReplayedAttention, TheMeanIsOverTheHeadsAndTheCountedLayersOfTheGroup) {
  ReplayedAttention replay;
  replay.Begin(kShape, Granularity::kToken);
  replay.Add(0, FirstPositions(1), Shown{{4}, 2}.Signals(), Decode());
  replay.Add(0, FirstPositions(1), Shown{{4}, 1}.Signals(), Decode());
  EXPECT_THAT(Left(replay, 0, 1), ElementsAre(0.5f + 1.0f));
  replay.Begin(kShape, Granularity::kHead);
  replay.Add(3, FirstPositions(1), Shown{{2}}.Signals(), Decode());
  EXPECT_THAT(Left(replay, 3, 1), ElementsAre(1));
}

TEST(ReplayedAttention, TakesEightBytesForAGroupAndToken) {
  ReplayedAttention replay;
  replay.Begin(kShape, Granularity::kHead);
  const Shown shown = {std::vector<float>(2048, 1e-3f)};
  for (int group = 0; group < 4; ++group) {
    replay.Add(group, FirstPositions(2048), shown.Signals(), Decode());
  }
  EXPECT_GE(replay.memory_bytes(), 4u * 2048 * 8);
  EXPECT_LE(replay.memory_bytes(), 2u * 4 * 2048 * 8);
}

TEST(ReplayedAttention, NothingIsForeseenBeforeTheFirstRun) {
  const ReplayedAttention replay;
  EXPECT_THAT(Left(replay, 3, 2), ElementsAre(0, 0));
}

}  // namespace
}  // namespace ebb
