#include "apps/common/terminal/wrap.h"

#include <gtest/gtest.h>

namespace ebb::cli {
namespace {

TEST(Wrapped, BreaksAtBlanksWithinTheColumns) {
  EXPECT_EQ(Wrapped("", 0, 10), "");
  EXPECT_EQ(Wrapped("one two three", 0, 7), "one two\nthree");
  EXPECT_EQ(Wrapped("one two three", 2, 9), "one two\n  three");
  EXPECT_EQ(Wrapped("a longerthanaline b", 0, 8), "a\nlongerthanaline\nb");
}

TEST(LinesWithin, BreaksLongLinesAlone) {
  EXPECT_EQ(LinesWithin("[one two three]\nfour\n", 9), "[one\n  two\n  three]\nfour\n");
  EXPECT_EQ(LinesWithin("\none\n\n", 10), "\none\n\n");
  EXPECT_EQ(LinesWithin("a text without width", 0), "a text without width");
  EXPECT_EQ(LinesWithin("", 10), "");
}

}  // namespace
}  // namespace ebb::cli
