#include "ebb/policy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebb {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

TEST(ParseBudget, ReadsRowsPercentAndBytes) {
  struct Case {
    const char* text;
    Budget::Unit unit;
    double value;
    const char* again;
  };
  const Case cases[] = {
      {"1024", Budget::Unit::kRows, 1024, "1024 rows"},
      {"1", Budget::Unit::kRows, 1, "1 rows"},
      {"2147483647", Budget::Unit::kRows, 2147483647, "2147483647 rows"},
      {"25%", Budget::Unit::kPercent, 25, "25%"},
      {"100%", Budget::Unit::kPercent, 100, "100%"},
      {"12.5%", Budget::Unit::kPercent, 12.5, "12.5%"},
      {"64MiB", Budget::Unit::kBytes, 67108864, "67108864 bytes"},
      {"2GB", Budget::Unit::kBytes, 2e9, "2000000000 bytes"},
      {"4096B", Budget::Unit::kBytes, 4096, "4096 bytes"},
      {"+512", Budget::Unit::kBeyond, 512, "+512 rows"},
      {"1/8", Budget::Unit::kCompression, 8, "1/8"},
      {"1/2.5", Budget::Unit::kCompression, 2.5, "1/2.5"},
  };
  for (const Case& c : cases) {
    const Result<Budget> budget = ParseBudget(c.text);
    ASSERT_TRUE(budget.ok()) << c.text;
    EXPECT_EQ(budget->unit, c.unit) << c.text;
    EXPECT_EQ(budget->value, c.value) << c.text;
    EXPECT_EQ(FormatBudget(*budget), c.again);
  }
  EXPECT_EQ(FormatBudget({}), "none");
}

TEST(ParseBudget, RefusesEverythingElse) {
  struct Case {
    const char* text;
    const char* why;
  };
  const Case cases[] = {
      {"", "not a number of rows"},
      {"0", "it must be above 0"},
      {"2147483648", "not a number of rows"},
      {"99999999999999999999", "not a number of rows"},
      {"-5", "not an amount"},
      {"1.5", "not an amount"},
      {"1e3", "not an amount"},
      {"10 rows", "not an amount"},
      {"0MiB", "not an amount"},
      {"MiB", "not an amount"},
      {"%", "not a number"},
      {"x%", "not a number"},
      {"5%%", "not a number"},
      {"0%", "not above 0% and up to 100%"},
      {"-1%", "not above 0% and up to 100%"},
      {"100.5%", "not above 0% and up to 100%"},
      {"nan%", "not above 0% and up to 100%"},
      {"inf%", "not above 0% and up to 100%"},
      {"+", "not a number of rows"},
      {"+0", "it must be above 0"},
      {"+-1", "it must be above 0"},
      {"+5%", "not a number"},
      {"1/", "not a number"},
      {"1/x", "not a number"},
      {"1/0.5", "a ratio below 1"},
      {"1/nan", "a ratio below 1"},
      {"2/8", "not an amount"},
  };
  for (const Case& c : cases) {
    const Status status = ParseBudget(c.text).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.text;
    EXPECT_THAT(status.message(), HasSubstr(c.why)) << c.text;
    EXPECT_THAT(status.message(),
                HasSubstr("write rows (1024), rows beyond the protected (+1024), percent (25%), "
                          "bytes (64MiB) or a compression ratio (1/8)"));
  }
}

TEST(ParsePolicy, SplitsNameAndParameters) {
  PolicySpec spec;
  ASSERT_TRUE(ParsePolicy("h2o:heavy=64,recent=32", &spec).ok());
  EXPECT_EQ(spec.name, "h2o");
  EXPECT_THAT(spec.params, UnorderedElementsAre(Pair("heavy", "64"), Pair("recent", "32")));
  ASSERT_TRUE(ParsePolicy("full", &spec).ok());
  EXPECT_EQ(spec.name, "full");
  EXPECT_THAT(spec.params, IsEmpty());
  ASSERT_TRUE(ParsePolicy("a:k=v=w", &spec).ok());
  EXPECT_THAT(spec.params, UnorderedElementsAre(Pair("k", "v=w")));
}

TEST(ParsePolicy, LeavesTheOtherOptionsAlone) {
  PolicySpec spec = {.scorer = "random", .sinks = 2, .seed = 9};
  ASSERT_TRUE(ParsePolicy("attention", &spec).ok());
  EXPECT_EQ(spec.scorer, "random");
  EXPECT_EQ(spec.sinks, 2);
  EXPECT_EQ(spec.seed, 9u);
}

TEST(ParsePolicy, RefusesWhatIsMalformedAndChangesNothing) {
  struct Case {
    const char* text;
    const char* why;
  };
  const Case cases[] = {
      {"", "it has no name"},
      {":a=1", "it has no name"},
      {"h2o:", "\"\" is not"},
      {"h2o:heavy", "\"heavy\" is not key=value"},
      {"h2o:=1", "\"=1\" is not"},
      {"h2o:heavy=", "\"heavy=\" is not"},
      {"h2o:heavy=1,", "\"\" is not"},
      {"h2o:,heavy=1", "\"\" is not"},
      {"h2o:a=1,a=2", "\"a\" is given twice"},
  };
  for (const Case& c : cases) {
    PolicySpec spec = {.name = "kept", .params = {{"k", "v"}}};
    const Status status = ParsePolicy(c.text, &spec);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << c.text;
    EXPECT_THAT(status.message(), HasSubstr(c.why)) << c.text;
    EXPECT_EQ(spec.name, "kept");
    EXPECT_THAT(spec.params, UnorderedElementsAre(Pair("k", "v")));
  }
}

}  // namespace
}  // namespace ebb
