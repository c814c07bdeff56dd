#include "src/base/text/size_text.h"

#include <gtest/gtest.h>

namespace ebb {
namespace {

TEST(SizeText, HasTheUnitThatAPersonReads) {
  const struct {
    double bytes;
    const char* text;
  } cases[] = {{0, "0 bytes"},         {1023, "1023 bytes"},  {1024, "1 KiB"},
               {1536, "1.5 KiB"},      {1048575, "1 MiB"},    {2097152, "2 MiB"},
               {37853593, "36.1 MiB"}, {1073741823, "1 GiB"}, {6034128896, "5.62 GiB"},
               {1e13, "9313.23 GiB"}};
  for (const auto& [bytes, text] : cases) EXPECT_EQ(SizeText(bytes), text);
}

TEST(WithCommas, PartsThousands) {
  const struct {
    int64_t number;
    const char* text;
  } cases[] = {{0, "0"},          {999, "999"},           {1000, "1,000"},
               {32768, "32,768"}, {1234567, "1,234,567"}, {-999, "-999"},
               {-1000, "-1,000"}};
  for (const auto& [number, text] : cases) EXPECT_EQ(WithCommas(number), text);
}

TEST(ComparedSizes, DifferIfTheSizesDo) {
  const ComparedSizes apart(uint64_t{5} << 20, uint64_t{6} << 20);
  EXPECT_EQ(apart.first + ", " + apart.second, "5 MiB, 6 MiB");
  const ComparedSizes close(6291455, 6291456);
  EXPECT_EQ(close.first + ", " + close.second, "6291455 bytes, 6291456 bytes");
  const ComparedSizes same(6291456, 6291456);
  EXPECT_EQ(same.first + ", " + same.second, "6 MiB, 6 MiB");
}

TEST(CheckHasUnit, AsksWhatASmallNumberMeans) {
  EXPECT_EQ(CheckHasUnit("8", "GiB").message(), "8 bytes; did you mean 8GiB?");
  EXPECT_EQ(CheckHasUnit("30", "MiB", true).message(), "30 bytes; did you mean 30% or 30MiB?");
  EXPECT_EQ(CheckHasUnit("512", "MiB", true).message(), "512 bytes; did you mean 512MiB?");
  for (const char* text :
       {"0", "1000000", "8GiB", "30%", "1e3", "", "x", "-8", "8 ", "99999999999999999999999999"}) {
    EXPECT_TRUE(CheckHasUnit(text, "GiB", true).ok()) << text;
  }
}

}  // namespace
}  // namespace ebb
