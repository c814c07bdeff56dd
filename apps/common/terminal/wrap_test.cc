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

}  // namespace
}  // namespace ebb::cli
