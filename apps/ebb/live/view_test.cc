#include "apps/ebb/live/view.h"

#include <gtest/gtest.h>

namespace ebb::cli {
namespace {

using Strings = std::vector<std::string>;

TEST(FillLinesTest, PartsShareALineWhileTheyFit) {
  EXPECT_EQ(FillLines({"aaa", "bbb", "ccc"}, 8), (Strings{"aaa  bbb", "ccc"}));
  EXPECT_EQ(FillLines({"aaa", "bbb"}, 7), (Strings{"aaa", "bbb"}));
  EXPECT_EQ(FillLines({}, 7), (Strings{}));
}

TEST(FillLinesTest, EscapeSequencesTakeNoColumns) {
  EXPECT_EQ(FillLines({"\033[9;90maaa\033[0m", "bbb"}, 8), (Strings{"\033[9;90maaa\033[0m  bbb"}));
}

TEST(FillLinesTest, WhatIsTooWideIsCutAndItsStyleEnds) {
  EXPECT_EQ(FillLines({"\033[32mabcdef\033[0m"}, 4), (Strings{"\033[32mabcd\033[0m"}));
}

using Tokens = std::vector<Token>;

Tokens Guesses(const ChosenToken& last, const Tokens& drafted, Position next_position) {
  const auto guesses = GuessesBehind(last, drafted, next_position);
  return {guesses.begin(), guesses.end()};
}

TEST(GuessesBehindTest, BeginBehindTheTokenThatIsShownAlready) {
  // The session has decoded the chosen token: the guesses follow it.
  EXPECT_EQ(Guesses({.position = 9, .token = 5}, {6, 7}, 10), (Tokens{6, 7}));
  // The session has not decoded the chosen token yet, and the first guess equals it.
  EXPECT_EQ(Guesses({.position = 10, .token = 6}, {6, 7}, 10), (Tokens{7}));
  // The chosen token refutes the first guess, and with it all guesses.
  EXPECT_EQ(Guesses({.position = 10, .token = 8}, {6, 7}, 10), (Tokens{}));
  EXPECT_EQ(Guesses({.position = 10, .token = 8}, {}, 10), (Tokens{}));
  // No token was chosen yet.
  EXPECT_EQ(Guesses({}, {6, 7}, 10), (Tokens{6, 7}));
}

}  // namespace
}  // namespace ebb::cli
