#include "src/step/work/recurrent_state.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "src/base/sanitizers.h"
#include "tests/support/memory_limit.h"
#include "tests/support/skip.h"

namespace ebb {
namespace {

constexpr size_t kBytes = 256;
constexpr size_t kMost = 4;  // the most checkpoints

// Writes `value` into the state, as a step that ends at `position` does.
void Step(RecurrentState* state, Position position, int value) {
  state->Reserve();
  std::memset(state->BeginStep(), value, kBytes);
  state->EndStep(position);
}

int ValueOf(RecurrentState* state) {
  const Position position = state->position();
  state->Reserve();
  const int value = std::to_integer<int>(state->BeginStep()[kBytes - 1]);
  state->EndStep(position);
  return value;
}

TEST(RecurrentState, GoesBackToCheckpointsAlone) {
  RecurrentState state(kBytes, kMost);
  Step(&state, 10, 1);
  state.Keep(/*replaces=*/false);
  Step(&state, 15, 2);
  EXPECT_EQ(state.NearestUpTo(15), 15);
  EXPECT_EQ(state.NearestUpTo(14), 10);
  EXPECT_EQ(state.NearestUpTo(9), 0);
  state.GoBackTo(10);
  EXPECT_EQ(state.position(), 10);
  EXPECT_EQ(ValueOf(&state), 1);
  state.GoBackTo(0);
  EXPECT_EQ(state.NearestUpTo(20), 0);
  EXPECT_EQ(ValueOf(&state), 0);
}

// A step of three tokens of which the sequence takes one, and the others one by one.
TEST(RecurrentState, TakesTheStatesAfterEachTokenOfAStepInTurn) {
  constexpr size_t kTokens = 3, kHalf = kBytes / 2;
  const std::vector<StatePart> parts = {{.offset = 0, .bytes = kHalf},
                                        {.offset = kHalf, .bytes = kHalf}};
  RecurrentState state(kBytes, kMost);
  Step(&state, 4, 9);
  const auto run_step = [&](int first_value) {
    state.ReserveAhead(kTokens);
    std::byte* const slots = state.BeginAhead(kTokens, parts);
    for (const StatePart& part : parts) {
      std::byte* const of_part = slots + kTokens * part.offset;
      EXPECT_EQ(std::to_integer<int>(of_part[0]), 9) << "the step reads the state so far";
      for (size_t t = 0; t < kTokens; ++t) {
        std::memset(of_part + (kTokens - 1 - t) * kHalf, first_value + static_cast<int>(t), kHalf);
      }
    }
    state.EndAhead(5);
  };
  const auto expect_at = [&](Position position, int value) {
    EXPECT_EQ(state.position(), position);
    state.Keep(/*replaces=*/true);  // a checkpoint is a copy, and changes nothing
    EXPECT_EQ(ValueOf(&state), value);
  };
  run_step(10);
  expect_at(5, 10);
  state.TakeNext();
  expect_at(6, 11);
  state.TakeNext();
  expect_at(7, 12);
  EXPECT_EQ(state.memory_bytes(), (2 + kTokens) * kBytes);
}

TEST(RecurrentState, KeepsTheFirstCheckpointAndOthersThatAreDenseNearTheEnd) {
  RecurrentState state(kBytes, kMost);
  for (Position position = 1; position <= 64; ++position) {
    Step(&state, position, position);
    state.Keep(/*replaces=*/false);
  }
  EXPECT_EQ(state.memory_bytes(), (1 + kMost) * kBytes);
  EXPECT_EQ(state.NearestUpTo(63), 63);
  EXPECT_GT(state.NearestUpTo(62), 30);
  EXPECT_EQ(state.NearestUpTo(2), 1);
  Step(&state, 65, 65);
  state.Keep(/*replaces=*/true);
  EXPECT_EQ(state.NearestUpTo(64), 63) << "the newest one was replaced";
  state.GoBackTo(63);
  EXPECT_EQ(ValueOf(&state), 63);
}

TEST(RecurrentState, SequencesShareCheckpointsUntilOneIsReplaced) {
  RecurrentState first(kBytes, kMost), second(kBytes, kMost);
  Step(&first, 10, 1);
  first.Keep(/*replaces=*/false);
  Step(&first, 20, 2);
  first.Keep(/*replaces=*/false);
  Step(&first, 30, 3);
  second.TakeFrom(first, 20);
  EXPECT_EQ(second.position(), 20);
  EXPECT_EQ(ValueOf(&second), 2);
  EXPECT_EQ(second.memory_bytes(), 2 * kBytes);
  EXPECT_EQ(second.NearestUpTo(19), 10);
  Step(&second, 25, 4);
  second.Keep(/*replaces=*/true);
  first.GoBackTo(20);
  EXPECT_EQ(ValueOf(&first), 2);
  second.GoBackTo(10);
  EXPECT_EQ(ValueOf(&second), 1);
}

// LargeRecurrentState tests states so large that the system maps memory for each copy.
class LargeRecurrentState : public testing::Test {
 protected:
  static constexpr size_t kLargeBytes = size_t{40} << 20;

  void SetUp() override {
    if (kAddressSanitizer) GTEST_SKIP() << "it ends the program where memory runs out";
    if (!MemoryLimitsHold()) EBB_SKIP_WITHOUT("memory_limits") << "RLIMIT_AS has no effect";
  }
  static void LargeStep(RecurrentState* state, Position position) {
    state->Reserve();
    std::memset(state->BeginStep(), position, kLargeBytes);
    state->EndStep(position);
  }
};

TEST_F(LargeRecurrentState, TakesNoMemoryForMoreCopiesThanItKeeps) {
  RecurrentState state(kLargeBytes, kMost);
  for (Position position = 1; position <= static_cast<Position>(kMost); ++position) {
    LargeStep(&state, position);
    state.Keep(/*replaces=*/false);
  }
  const MemoryLimit no_copy_more(kLargeBytes / 2);
  LargeStep(&state, 40);
  state.Keep(/*replaces=*/false);
  LargeStep(&state, 50);
  EXPECT_EQ(state.NearestUpTo(49), 40);
  state.Keep(/*replaces=*/true);
  LargeStep(&state, 60);
  EXPECT_EQ(state.NearestUpTo(59), 50);
  EXPECT_LT(state.NearestUpTo(49), 40) << "the newest one was replaced";
}

TEST_F(LargeRecurrentState, WithoutMemoryTheSharedCheckpointThatWasToGoStays) {
  RecurrentState first(kLargeBytes, kMost), second(kLargeBytes, kMost);
  LargeStep(&first, 10);
  first.Keep(/*replaces=*/false);
  LargeStep(&first, 20);
  first.Keep(/*replaces=*/false);
  second.TakeFrom(first, 20);
  LargeStep(&second, 30);
  {
    const MemoryLimit no_copy_more(kLargeBytes / 2);
    second.Keep(/*replaces=*/true);
  }
  LargeStep(&second, 40);
  EXPECT_EQ(second.NearestUpTo(39), 20);
}

TEST(RecurrentState, AStepThatDoesNotEndLeavesNoPosition) {
  RecurrentState state(kBytes, kMost);
  Step(&state, 10, 1);
  state.Keep(/*replaces=*/false);
  (void)state.BeginStep();
  EXPECT_EQ(state.position(), -1);
  EXPECT_EQ(state.NearestUpTo(11), 10);
}

TEST(RecurrentState, ComesBackFromAFile) {
  RecurrentState state(kBytes, kMost);
  Step(&state, 10, 1);
  state.Keep(/*replaces=*/false);
  Step(&state, 12, 2);
  StateWriter writer;
  state.Save(&writer);
  RecurrentState loaded(kBytes, kMost);
  StateReader reader(writer.bytes(), "state");
  loaded.Load(&reader);
  ASSERT_TRUE(reader.End().ok());
  EXPECT_EQ(loaded.position(), 12);
  EXPECT_EQ(ValueOf(&loaded), 2);
  loaded.GoBackTo(10);
  EXPECT_EQ(ValueOf(&loaded), 1);
  RecurrentState other(2 * kBytes, kMost);
  StateReader wrong(writer.bytes(), "state");
  other.Load(&wrong);
  EXPECT_FALSE(wrong.status().ok());
}

}  // namespace
}  // namespace ebb
