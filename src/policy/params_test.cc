#include "src/policy/params.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebb {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::string_view kDeclared = "heavy=N,last=P,alpha=X,h1=sigmoid|none";

TEST(ReadParams, ReadsEachKindAndLeavesTheRestUnset) {
  const Result<Params> read = ReadParams(
      "p", kDeclared, {{"heavy", "0"}, {"last", "7"}, {"alpha", "5e-4"}, {"h1", "none"}});
  ASSERT_TRUE(read.ok()) << read.status().ToString();
  EXPECT_EQ(read->Int("heavy", 3), 0);
  EXPECT_EQ(read->Find("last"), 7);
  EXPECT_FLOAT_EQ(read->Number("alpha", 1), 5e-4f);
  EXPECT_EQ(read->Word("h1", "sigmoid"), "none");

  const Result<Params> none = ReadParams("p", kDeclared, {});
  ASSERT_TRUE(none.ok());
  EXPECT_EQ(none->Int("heavy", 3), 3);
  EXPECT_EQ(none->Find("last"), std::nullopt);
  EXPECT_EQ(none->Number("alpha", 1), 1);
  EXPECT_EQ(none->Word("h1", "sigmoid"), "sigmoid");
}

TEST(ReadParams, RefusesWhatDoesNotFitNamingWhatDoes) {
  struct Refusal {
    const char* key;
    const char* text;
    const char* message;
  };
  const Refusal cases[] = {
      {"heavy", "-1", "policy \"p\": heavy=\"-1\": expected 0 to 268435456"},
      {"heavy", "1.5", "policy \"p\": heavy=\"1.5\": expected 0 to 268435456"},
      {"last", "0", "policy \"p\": last=\"0\": expected 1 to 268435456"},
      {"last", "268435457", "policy \"p\": last=\"268435457\": expected 1 to 268435456"},
      {"alpha", "-0.1", "policy \"p\": alpha=\"-0.1\": expected a number from 0 on"},
      {"alpha", "nan", "policy \"p\": alpha=\"nan\": expected a number from 0 on"},
      {"alpha", "1x", "policy \"p\": alpha=\"1x\": expected a number from 0 on"},
      {"h1", "cosh", "policy \"p\": h1=\"cosh\": expected sigmoid, none"},
      {"h2", "none", "policy \"p\" has no parameter \"h2\"; valid: heavy, last, alpha, h1"},
      {"budget", "25%",
       "policy \"p\" has no parameter \"budget\", which is an option of its own; valid: heavy, "
       "last, "
       "alpha, h1"},
  };
  for (const Refusal& c : cases) {
    const Status status = ReadParams("p", kDeclared, {{c.key, c.text}}).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.message(), c.message);
  }
  EXPECT_EQ(ReadParams("p", "", {{"k", "v"}}).status().message(),
            "policy \"p\" has no parameter \"k\"; it has none");
}

TEST(ReadParams, TokensThatMemoryIsTakenForAreBoundedByTheContextAndAnyway) {
  const auto read = [](const char* text, int context) {
    return ReadParams("p", "last=T", {{"last", text}}, context);
  };
  EXPECT_EQ(read("512", 512)->Find("last"), 512);
  EXPECT_EQ(read("513", 512).status().message(), "policy \"p\": last=\"513\": expected 1 to 512");
  EXPECT_EQ(read("0", 512).status().message(), "policy \"p\": last=\"0\": expected 1 to 512");
  for (const int context : {0, 1 << 20}) {
    EXPECT_EQ(read("1024", context)->Find("last"), 1024);
    EXPECT_EQ(read("1025", context).status().message(),
              "policy \"p\": last=\"1025\": expected 1 to 1024");
  }
}

TEST(ParamNames, AreThoseOfTheDeclaration) {
  EXPECT_THAT(ParamNames(kDeclared), ElementsAre("heavy", "last", "alpha", "h1"));
  EXPECT_THAT(ParamNames(""), IsEmpty());
}

}  // namespace
}  // namespace ebb
