#include "src/cli/live_view.h"

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

}  // namespace
}  // namespace ebb::cli
