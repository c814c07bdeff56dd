#include "src/step/recurrent_state.h"

#include <gtest/gtest.h>

#include <cstring>

namespace ebb {
namespace {

constexpr size_t kBytes = 256;

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
  RecurrentState state(kBytes);
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

TEST(RecurrentState, KeepsTheLastCheckpoints) {
  RecurrentState state(kBytes);
  for (const Position position : {10, 20, 30}) {
    Step(&state, position, position);
    state.Keep(/*replaces=*/false);
  }
  EXPECT_EQ(state.NearestUpTo(19), 0) << "the oldest one went";
  EXPECT_EQ(state.memory_bytes(), (1 + RecurrentState::kMaxCheckpoints) * kBytes);
  Step(&state, 40, 40);
  state.Keep(/*replaces=*/true);
  EXPECT_EQ(state.NearestUpTo(39), 20) << "the newest one was replaced";
  state.GoBackTo(20);
  EXPECT_EQ(ValueOf(&state), 20);
}

TEST(RecurrentState, AStepThatDoesNotEndLeavesNoPosition) {
  RecurrentState state(kBytes);
  Step(&state, 10, 1);
  state.Keep(/*replaces=*/false);
  (void)state.BeginStep();
  EXPECT_EQ(state.position(), -1);
  EXPECT_EQ(state.NearestUpTo(11), 10);
}

TEST(RecurrentState, ComesBackFromAFile) {
  RecurrentState state(kBytes);
  Step(&state, 10, 1);
  state.Keep(/*replaces=*/false);
  Step(&state, 12, 2);
  StateWriter writer;
  state.Save(&writer);
  RecurrentState loaded(kBytes);
  StateReader reader(writer.bytes(), "state");
  loaded.Load(&reader);
  ASSERT_TRUE(reader.End().ok());
  EXPECT_EQ(loaded.position(), 12);
  EXPECT_EQ(ValueOf(&loaded), 2);
  loaded.GoBackTo(10);
  EXPECT_EQ(ValueOf(&loaded), 1);
  RecurrentState other(2 * kBytes);
  StateReader wrong(writer.bytes(), "state");
  other.Load(&wrong);
  EXPECT_FALSE(wrong.status().ok());
}

}  // namespace
}  // namespace ebb
