#include "src/step/recurrent_state.h"

#include <gtest/gtest.h>

#include <cstring>

namespace ebb {
namespace {

constexpr size_t kBytes = 256;
constexpr size_t kMost = 4;  // checkpoints

// Writes `value` into the state, as a step that ends at `position`.
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
