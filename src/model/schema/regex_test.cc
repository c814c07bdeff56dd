#include "src/model/schema/regex.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include <optional>

#include <fmt/format.h>

#include "src/model/schema/number_range.h"
#include "src/model/schema/regex_grammar.h"

namespace ebb {
namespace {

using testing::HasSubstr;

bool MatchesNode(const RegexNode& node, const std::string& text) {
  size_t work = 10000000;
  const std::optional<bool> matches = MatchesWhole(node, text, &work);
  EXPECT_TRUE(matches.has_value());
  return matches == true;
}

bool Matches(const std::string& pattern, const std::string& text,
             RegexMatch match = RegexMatch::kWhole) {
  const Result<RegexNode> node = ParseRegex(pattern, match);
  EXPECT_TRUE(node.ok()) << pattern << ": " << node.status().ToString();
  return node.ok() && MatchesNode(*node, text);
}

TEST(Regex, AMatchTakesNoMoreWorkThanItMay) {
  const auto node = ParseRegex("((a{0,1000}){0,1000}){0,1000}b", RegexMatch::kWhole);
  ASSERT_TRUE(node.ok());
  size_t work = 10000000;
  EXPECT_EQ(MatchesWhole(*node, std::string(20, 'a') + "b", &work), true);
  EXPECT_LT(work, 10000000U);
  EXPECT_EQ(MatchesWhole(*node, std::string(100000, 'a'), &work), std::nullopt);
  EXPECT_EQ(work, 0U);
}

// Counts that are too large for a grammar are written as several, of which each repeats its part.
TEST(Regex, LargeCountsWithinEachOtherAreRefused) {
  const auto nested = [](int depth, const std::string& count) {
    std::string pattern = "a";
    for (int i = 0; i < depth; ++i) pattern = "(" + pattern + ")" + count;
    return pattern;
  };
  for (const char* count : {"{0,9999}", "{3000}", "{1500,}", "{1500,3000}", "{0,1000000000}"}) {
    EXPECT_TRUE(ParseRegex(nested(2, count), RegexMatch::kWhole).ok()) << count;
    const auto refused = ParseRegex(nested(40, count), RegexMatch::kWhole);
    EXPECT_THAT(refused.status().message(), HasSubstr("counts within each other")) << count;
  }
  for (const char* count : {"{0,999}", "?", "*", "{1000}"}) {
    EXPECT_TRUE(ParseRegex(nested(40, count), RegexMatch::kWhole).ok()) << count;
  }
}

TEST(Regex, MatchesAsJavaScriptDoes) {
  const struct {
    std::string pattern;
    std::vector<std::string> matching, others;
  } cases[] = {
      {"abc", {"abc"}, {"", "ab", "abcd"}},
      {"a|bc|", {"a", "bc", ""}, {"b", "abc"}},
      {"(ab)+c?", {"ab", "ababc"}, {"c", "aba"}},
      {"a{2}", {"aa"}, {"a", "aaa"}},
      {"a{2,}", {"aa", "aaaa"}, {"a"}},
      {"a{0,2}b", {"b", "aab"}, {"aaab"}},
      {"a{,2}", {"", "aa"}, {"aaa"}},
      {"a{x}", {"a{x}"}, {"a"}},
      {R"(\d+\.\d)", {"12.3"}, {"12a3", "."}},
      {R"([\w-]+)", {"a-_9"}, {"é", ""}},
      {R"(\S\s\S)", {"a b", "é\tü"}, {"a  "}},
      {"[^a-c]", {"d", "é", "\n"}, {"a", "dd"}},
      {".", {"a", "😀"}, {"\n", "\r", "aa"}},
      {R"(\u00e9\x41\u{1F600}\t\/)", {"éA😀\t/"}, {"eA"}},
      {R"(\ud83d\ude00)", {"😀"}, {"a"}},
      {R"([\]\\^-])", {"]", "\\", "^", "-"}, {"a"}},
      {"(?:a)(?<n>b)(?P<m>c)", {"abc"}, {"ab"}},
      {"a*?b+?c??", {"ab", "bbc"}, {"a"}},
      {"^a$", {"a"}, {"^a$"}},
  };
  for (const auto& one : cases) {
    for (const std::string& text : one.matching) {
      EXPECT_TRUE(Matches(one.pattern, text)) << one.pattern << " " << text;
    }
    for (const std::string& text : one.others) {
      EXPECT_FALSE(Matches(one.pattern, text)) << one.pattern << " " << text;
    }
  }
}

TEST(Regex, MatchesAnywhereUnlessItIsAnchored) {
  const auto anywhere = [](const std::string& pattern, const std::string& text) {
    return Matches(pattern, text, RegexMatch::kAnywhere);
  };
  EXPECT_TRUE(anywhere("b", "abc"));
  EXPECT_TRUE(anywhere("^a", "ab"));
  EXPECT_FALSE(anywhere("^b", "ab"));
  EXPECT_TRUE(anywhere("c$", "abc"));
  EXPECT_FALSE(anywhere("b$", "abc"));
  EXPECT_TRUE(anywhere("^a|c$", "xc"));
  EXPECT_FALSE(anywhere("^a|c$", "xcx"));
  EXPECT_TRUE(anywhere("(^a$)|(^b$)", "b"));
  EXPECT_FALSE(anywhere("(^a$)|(^b$)", "ab"));
  EXPECT_TRUE(anywhere("", "a\nb"));
}

TEST(Regex, RefusesWhatNoGrammarHoldsByItsName) {
  const std::pair<std::string, std::string> cases[] = {
      {"(?=a)", "lookaround"},
      {"(?<!a)b", "lookaround"},
      {R"((a)\1)", "back reference"},
      {R"(\k<n>)", "back reference"},
      {R"(\bfoo)", "word boundary"},
      {"(?i)a", "inline flags"},
      {R"(\p{L})", "Unicode property"},
      {"a^b", "anchor inside"},
      {"[z-a]", "wrong order"},
      {"(a", "opening bracket"},
      {"a)", "closing bracket"},
      {"*a", "repetition of nothing"},
      {"[a", "class without an end"},
      {"a{3,2}", "below its smallest"},
      {"a++", "possessive"},
      {R"(\q)", "escape \\q"},
      {R"(\)", "backslash at the end"},
      {R"(\xzz)", "hexadecimal"},
      {"[]", "class without characters"},
      {std::string(5000, 'a'), "4096 bytes"},
      {std::string(60, '(') + std::string(60, ')'), "50 deep"}};
  for (const auto& [pattern, why] : cases) {
    const Status status = ParseRegex(pattern, RegexMatch::kWhole).status();
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument) << pattern;
    EXPECT_THAT(status.message(), HasSubstr(why)) << pattern;
  }
}

TEST(Regex, MatchingTakesNoExponentialTime) {
  EXPECT_FALSE(Matches("(a+)+b", std::string(500, 'a')));
  EXPECT_FALSE(Matches("(a|a)*b", std::string(500, 'a')));
  EXPECT_TRUE(Matches("(a?){1000000}", "aaa"));
}

TEST(Regex, LengthsAreThoseOfWhatMatches) {
  const auto lengths = [](const std::string& pattern) {
    const LengthRange range = LengthsOf(*ParseRegex(pattern, RegexMatch::kWhole));
    return std::pair(range.least, range.most);
  };
  EXPECT_EQ(lengths("ab?[é]"), std::pair(size_t{2}, size_t{3}));
  EXPECT_EQ(lengths("a|bcd"), std::pair(size_t{1}, size_t{3}));
  EXPECT_EQ(lengths("(ab){2,3}"), std::pair(size_t{4}, size_t{6}));
  EXPECT_EQ(lengths("a*"), std::pair(size_t{0}, RegexNode::kNoLimit));
}

TEST(Regex, OneCountTakesTheBoundsOfTheLength) {
  const auto bounded = WithLengths(*ParseRegex("[A-Z][a-z]*x", RegexMatch::kWhole), {3, 4});
  ASSERT_TRUE(bounded.has_value());
  EXPECT_FALSE(MatchesNode(*bounded, "Ax"));
  EXPECT_TRUE(MatchesNode(*bounded, "Aax"));
  EXPECT_TRUE(MatchesNode(*bounded, "Aaax"));
  EXPECT_FALSE(MatchesNode(*bounded, "Aaaax"));
  EXPECT_FALSE(WithLengths(*ParseRegex("a*b*", RegexMatch::kWhole), {0, 4}).has_value());
}

TEST(Regex, JsonStringsEscapeWhatTheyMust) {
  const RegexNode node = JsonEncoded(*ParseRegex(R"([\s\S]{3})", RegexMatch::kWhole));
  EXPECT_TRUE(MatchesNode(node, R"(a\"b)"));
  EXPECT_TRUE(MatchesNode(node, R"(\\\n\u0001)"));
  EXPECT_FALSE(MatchesNode(node, R"(a"b)"));
  EXPECT_FALSE(MatchesNode(node, "a\nb"));
  EXPECT_FALSE(MatchesNode(node, R"(\q\q\q)"));
}

TEST(NumberRange, HoldsTheNumbersWithinItsBounds) {
  const char* const bounds[] = {"",   "0",    "1",     "0.5",    "-0.5",
                                "10", "99.9", "-3.25", "1.5e-2", "-10"};
  for (const std::string low : bounds) {
    for (const std::string high : bounds) {
      for (const bool is_open : {false, true}) {
        auto least = low.empty() ? std::nullopt : NumberBound::Parse(low);
        auto most = high.empty() ? std::nullopt : NumberBound::Parse(high);
        if (least.has_value()) least->is_open = is_open;
        const auto numbers = NumbersBetween(least, most);
        for (int i = -1200; i <= 1200; ++i) {
          const std::string text = fmt::format("{:.3f}", i * (i % 7 == 0 ? 0.1 : 0.005));
          const double value = std::stod(text);
          if (value == 0 && text[0] == '-') continue;  // it may have two texts
          const bool is_above =
              low.empty() || value > std::stod(low) || (!is_open && value == std::stod(low));
          const bool is_within = is_above && (high.empty() || value <= std::stod(high));
          ASSERT_EQ(numbers.has_value() && MatchesNode(*numbers, text), is_within)
              << low << " to " << high << ": " << text;
        }
      }
    }
  }
  EXPECT_FALSE(NumberBound::Parse("1e20").has_value());
  EXPECT_FALSE(NumbersBetween(NumberBound::Parse("2"), NumberBound::Parse("1")).has_value());
}

}  // namespace
}  // namespace ebb
