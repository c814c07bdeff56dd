#include "src/policy/protection.h"

#include <random>
#include <string_view>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebb {
namespace {

using ::testing::ElementsAreArray;

// 'p' is a given token, anything else a generated one.
std::vector<TokenKind> Kinds(std::string_view text) {
  std::vector<TokenKind> kinds;
  for (const char c : text) {
    kinds.push_back(c == 'p' ? TokenKind::kGiven : TokenKind::kGenerated);
  }
  return kinds;
}

struct ProtectionCase {
  const char* name;
  const char* tokens;
  int sinks;
  int window;
  std::vector<PositionRange> expected;
};

TEST(Protection, FollowsTheTable) {
  const ProtectionCase cases[] = {
      {"nothing yet", "", 4, 128, {}},
      {"only a prompt", "pppp", 0, 0, {}},
      {"all in the window", "ppxx", 0, 4, {}},
      {"no protection but the prompt", "ppxxx", 0, 0, {{2, 5}}},
      {"the sinks follow the prompt", "ppxxxxx", 2, 0, {{4, 7}}},
      {"sinks and window", "ppxxxxxxx", 2, 3, {{4, 6}}},
      {"sinks and window meet", "ppxxxxx", 2, 3, {}},
      {"sinks and window overlap", "ppxxxx", 3, 3, {}},
      {"without a prompt", "xxxxxx", 1, 2, {{1, 4}}},
      {"a later user turn is protected", "pxxxxpppxxxx", 1, 1, {{2, 5}, {8, 11}}},
      {"the window reaches into a user turn", "pxxxxppp", 1, 2, {{2, 5}}},
      {"the window ends an earlier answer", "pxxxxppp", 1, 5, {{2, 3}}},
      {"sinks that an answer was too short for", "pxpxxxx", 3, 1, {{5, 6}}},
      {"only the first answer has sinks", "pxxxpxxx", 2, 0, {{3, 4}, {5, 8}}},
      {"window larger than all", "pxxxx", 0, 100, {}},
  };
  std::vector<PositionRange> ranges;
  for (const ProtectionCase& c : cases) {
    SCOPED_TRACE(c.name);
    FindUnprotected(Kinds(c.tokens), c.sinks, c.window, &ranges);
    EXPECT_THAT(ranges, ElementsAreArray(c.expected));
  }
}

TEST(Protection, AgreesWithAskingForEachToken) {
  std::mt19937 random(3);
  std::vector<PositionRange> ranges;
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<TokenKind> kinds(random() % 60);
    for (size_t i = 0; i < kinds.size(); ++i) {
      const bool same = i > 0 && random() % 5 != 0;
      kinds[i] = same ? kinds[i - 1] : static_cast<TokenKind>(random() % 2);
    }
    const int sinks = random() % 6;
    const int window = random() % 20;
    FindUnprotected(kinds, sinks, window, &ranges);
    int num_generated = 0;
    for (int i = 0; i < static_cast<int>(kinds.size()); ++i) {
      bool listed = false;
      for (const PositionRange& range : ranges) listed |= range.begin <= i && i < range.end;
      const bool generated = kinds[i] == TokenKind::kGenerated;
      num_generated += generated ? 1 : 0;
      const bool in_window = i >= static_cast<int>(kinds.size()) - window;
      ASSERT_EQ(listed, generated && num_generated > sinks && !in_window);
    }
  }
}

TEST(Protection, CountsGivenTokens) {
  EXPECT_EQ(CountGiven(Kinds("")), 0);
  EXPECT_EQ(CountGiven(Kinds("ppxxpx")), 3);
}

TEST(Protection, FindsTheRowsThatAreStillAlive) {
  const std::vector<Position> positions = {0, 1, 4, 6, 7, 9, 20};
  struct RowCase {
    std::vector<PositionRange> ranges;
    std::vector<RowRange> expected;
  };
  const RowCase cases[] = {
      {{}, {}},
      {{{0, 21}}, {{0, 7}}},
      {{{1, 5}}, {{1, 3}}},
      {{{2, 4}}, {}},
      {{{2, 7}, {9, 15}}, {{2, 4}, {5, 6}}},
      {{{2, 3}, {8, 9}, {10, 30}}, {{6, 7}}},
      {{{21, 40}}, {}},
  };
  std::vector<RowRange> rows;
  for (const RowCase& c : cases) {
    FindRows(positions, c.ranges, &rows);
    EXPECT_THAT(rows, ElementsAreArray(c.expected));
  }
}

}  // namespace
}  // namespace ebb
