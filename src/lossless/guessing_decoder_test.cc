#include "src/lossless/guessing_decoder.h"

#include <gtest/gtest.h>

namespace ebb {
namespace {

TEST(GuessAccount, LetsGraphsTakeASmallShareOfTheTime) {
  GuessAccount slow, fast;
  for (int i = 0; i < 20; ++i) {
    slow.Add(0.04, 0.04);
    fast.Add(0.0001, 0.0001);
  }
  EXPECT_LE(slow.SecondsToGuess(4, 0.04), 0) << "graphs take less than a step";
  EXPECT_GT(fast.SecondsToGuess(1, 0.0001), 0.05) << "graphs take many steps";
  EXPECT_LE(fast.SecondsToGuess(0, 0.0001), 0);
  slow.AddGraphs(400);
  EXPECT_GT(slow.SecondsToGuess(1, 0.04), 0);
}

TEST(GuessAccount, WaitsAfterLosses) {
  GuessAccount account;
  for (int i = 0; i < 100; ++i) account.Add(1, 1);
  account.Add(8, 1);  // a step with guesses that are wrong
  EXPECT_LE(account.SecondsToGuess(0, 1), 0) << "a few steps are free";
  account.Add(8, 1);
  EXPECT_GT(account.SecondsToGuess(0, 1), 100);
  for (int i = 0; i < 20; ++i) account.Add(0, 1);  // guesses that were right
  EXPECT_LE(account.SecondsToGuess(0, 1), 0);
}

}  // namespace
}  // namespace ebb
