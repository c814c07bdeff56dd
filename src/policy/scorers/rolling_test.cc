#include "src/policy/scorers/rolling.h"

#include <cmath>

#include "gtest/gtest.h"

namespace ebb {
namespace {

TEST(Rolling, ForgetsWhatLeftTheWindow) {
  Rolling rolling(3);
  EXPECT_EQ(rolling.Mean(), 0);
  EXPECT_EQ(rolling.ZScore(), 0);
  rolling.Push(10);
  EXPECT_EQ(rolling.Mean(), 10);
  EXPECT_EQ(rolling.ZScore(), 0);
  for (const float x : {1.0f, 2.0f, 6.0f}) rolling.Push(x);
  EXPECT_EQ(rolling.Mean(), 3);
  EXPECT_NEAR(rolling.ZScore(), 3 / std::sqrt((4 + 1 + 9) / 3.0), 1e-5);
  rolling.Clear();
  EXPECT_EQ(rolling.Mean(), 0);
}

TEST(Rolling, EqualNumbersHaveNoDeviation) {
  Rolling rolling(4);
  for (int i = 0; i < 9; ++i) rolling.Push(5);
  EXPECT_EQ(rolling.ZScore(), 0);
}

TEST(Rolling, GoesOnAfterBeingSaved) {
  Rolling rolling(3);
  for (const float x : {1.0f, 2.0f, 6.0f, 7.0f}) rolling.Push(x);
  StateWriter to;
  rolling.Save(&to);
  Rolling other(3);
  StateReader from(to.bytes(), "a window");
  ASSERT_TRUE(other.Load(&from).ok());
  rolling.Push(3);
  other.Push(3);
  EXPECT_EQ(other.Mean(), rolling.Mean());
  EXPECT_EQ(other.ZScore(), rolling.ZScore());

  Rolling longer(4);
  StateReader again(to.bytes(), "a window");
  EXPECT_FALSE(longer.Load(&again).ok());
}

}  // namespace
}  // namespace ebb
