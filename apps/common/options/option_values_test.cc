#include "apps/common/options/option_values.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ebb::cli {
namespace {

template <typename T>
std::string Refusal(std::string_view text, Range range = {}) {
  T value{};
  const Status status = ParseValue(text, range, &value);
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << text;
  EXPECT_EQ(value, T{}) << text;
  return status.message();
}

template <typename T>
T Parsed(std::string_view text, Range range = {}) {
  T value{};
  const Status status = ParseValue(text, range, &value);
  EXPECT_TRUE(status.ok()) << status.message();
  return value;
}

TEST(ParseValueTest, ReadsIntegersWithinTheirRange) {
  EXPECT_EQ(Parsed<int>("-7"), -7);
  EXPECT_EQ(Parsed<int>("2147483647"), 2147483647);
  EXPECT_EQ(Parsed<int>("3", {.min = 3, .max = 3}), 3);
  EXPECT_EQ(Refusal<int>("2147483648"),
            "expected an integer from -2147483648 to 2147483647, found \"2147483648\"");
  EXPECT_EQ(Refusal<int>("2", {.min = 3}), "expected an integer from 3 to 2147483647, found \"2\"");
  EXPECT_EQ(Refusal<int>("9", {.min = 3, .max = 8}),
            "expected an integer from 3 to 8, found \"9\"");
  for (const char* text : {"", " 1", "1 ", "1.0", "0x1", "one", "+1", "1,2"}) Refusal<int>(text);
}

TEST(ParseValueTest, ReadsNumbersWithinTheirRange) {
  EXPECT_EQ(Parsed<float>("0.5"), 0.5F);
  EXPECT_EQ(Parsed<double>("1e3"), 1000);
  EXPECT_EQ(Refusal<float>("1.5", {.min = 0, .max = 1}),
            "expected a number from 0 to 1, found \"1.5\"");
  for (const char* text : {"", "nan", "inf", "-inf", "1e999", "1;5", "0.5x"}) Refusal<double>(text);
}

TEST(ParseValueTest, ReadsSeedsOf64Bits) {
  EXPECT_EQ(Parsed<uint64_t>("18446744073709551615"), ~uint64_t{0});
  EXPECT_EQ(Refusal<uint64_t>("-1"), "expected an integer from 0 to 2^64 - 1, found \"-1\"");
  Refusal<uint64_t>("18446744073709551616");
}

TEST(ParseValueTest, ReadsListsAndReplacesWhatWasThere) {
  std::vector<int> list = {1, 2, 3};
  ASSERT_TRUE(ParseValue("512,2048", {.min = 0}, &list).ok());
  EXPECT_EQ(list, (std::vector<int>{512, 2048}));
  for (const char* text : {"", "1,", ",1", "1,,2", "1,x", "1,-1"}) {
    EXPECT_FALSE(ParseValue(text, {.min = 0}, &list).ok()) << text;
    EXPECT_EQ(list, (std::vector<int>{512, 2048})) << text;
  }
}

TEST(ParseValueTest, CollectsRepeatedTexts) {
  std::vector<std::string> stops;
  ASSERT_TRUE(ParseValue("a", {}, &stops).ok());
  ASSERT_TRUE(ParseValue("b,c", {}, &stops).ok());
  EXPECT_EQ(stops, (std::vector<std::string>{"a", "b,c"}));
  EXPECT_FALSE(ParseValue("", {}, &stops).ok());
}

TEST(ParseValueTest, TellsNoTextFromAnEmptyOne) {
  EXPECT_EQ(Parsed<std::optional<std::string>>(""), std::string());
  EXPECT_EQ(Parsed<std::optional<int>>("3"), 3);
}

TEST(ShowValueTest, ShowsWhatParsingReads) {
  EXPECT_EQ(ShowValue(-1), "-1");
  EXPECT_EQ(ShowValue(0.05), "0.05");
  EXPECT_EQ(ShowValue(static_cast<double>(0.95F)), "0.95");
  EXPECT_EQ(ShowValue(uint64_t{7}), "7");
  EXPECT_EQ(ShowValue(std::vector<int>{512, 8000}), "512,8000");
  EXPECT_EQ(ShowValue(std::vector<std::string>{"a", "b"}), "a, b");
  EXPECT_EQ(ShowValue(std::optional<int>()), "");
  EXPECT_EQ(ShowValue(std::optional<std::string>()), "");
  EXPECT_EQ(ShowValue(std::string("x")), "x");
}

}  // namespace
}  // namespace ebb::cli
