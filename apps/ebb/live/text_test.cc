#include "apps/ebb/live/text.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ebb::cli {
namespace {

// Plain and ByToken replace a style: ByToken gives the position of the token, so that a line reads
// "[0]abc[1]def".
std::string Plain(Position, TextPart) { return ""; }
std::string ByToken(Position position, TextPart) { return std::to_string(position); }

std::vector<std::string> Lines(const LiveText& text) {
  std::vector<std::string> lines;
  for (size_t i = 0; i < text.num_lines(); ++i) lines.push_back(text.Line(i, Plain));
  return lines;
}

LiveText TextOf(std::string_view bytes, int width) {
  LiveText text;
  text.SetWidth(width);
  text.Append(bytes, 0, TextPart::kAnswer);
  return text;
}

using Strings = std::vector<std::string>;

TEST(LiveTextTest, LinesAreCutAtTheWidth) {
  EXPECT_EQ(Lines(TextOf("abcdefgh", 3)), (Strings{"abc", "def", "gh"}));
  EXPECT_EQ(Lines(TextOf("abc", 3)), (Strings{"abc"}));
  EXPECT_EQ(Lines(TextOf("", 3)), (Strings{""}));
}

TEST(LiveTextTest, LineBreaksOfTheTextEndLines) {
  EXPECT_EQ(Lines(TextOf("ab\n\ncd\n", 10)), (Strings{"ab", "", "cd", ""}));
  EXPECT_EQ(Lines(TextOf("abc\ndef", 3)), (Strings{"abc", "def"}));
}

TEST(LiveTextTest, WideCharactersTakeTwoColumnsAndCombiningOnesNone) {
  EXPECT_EQ(Lines(TextOf("日本語", 4)), (Strings{"日本", "語"}));
  EXPECT_EQ(Lines(TextOf("日本", 3)), (Strings{"日", "本"}));
  EXPECT_EQ(Lines(TextOf("e\u0301e", 2)), (Strings{"e\u0301e"}));
}

TEST(LiveTextTest, CharactersThatWouldDriveTheTerminalAreReplaced) {
  EXPECT_EQ(Lines(TextOf("a\033[2Jb", 20)), (Strings{"a\uFFFD[2Jb"}));
  EXPECT_EQ(Lines(TextOf("a\u009B2J", 20)), (Strings{"a\uFFFD2J"}));
  EXPECT_EQ(Lines(TextOf("a\u202Eb\u2066c", 20)), (Strings{"a\uFFFDb\uFFFDc"}));
}

TEST(LiveTextTest, AnotherWidthLaysAllLinesOutAnew) {
  LiveText text = TextOf("abcdef\ngh", 4);
  text.SetWidth(5);
  EXPECT_EQ(Lines(text), (Strings{"abcde", "f", "gh"}));
  text.SetWidth(2);
  EXPECT_EQ(Lines(text), (Strings{"ab", "cd", "ef", "gh"}));
}

TEST(LiveTextTest, ACharacterOfTwoTokensBelongsToTheFirst) {
  LiveText text;
  text.Append("a\xC3", 7, TextPart::kAnswer);
  text.Append("\xA9z", 8, TextPart::kAnswer);
  EXPECT_EQ(text.Line(0, ByToken), "\033[7maé\033[0m\033[8mz\033[0m");
}

TEST(LiveTextTest, NothingThatSteersATerminalReachesIt) {
  EXPECT_EQ(TextOf("a\033[2Jb\x07\x7f", 80).Line(0, Plain), "a\uFFFD[2Jb\uFFFD\uFFFD");
  EXPECT_EQ(TextOf("\xC2\x9B", 80).Line(0, Plain), "\uFFFD");  // a control character of C1
  EXPECT_EQ(TextOf(std::string_view("a\0b", 3), 80).Line(0, Plain), "a\uFFFDb");
  EXPECT_EQ(TextOf("a\r\nb", 80).Line(0, Plain), "a");
}

TEST(LiveTextTest, BytesThatAreNoCharacterAreShownAsSuch) {
  EXPECT_EQ(TextOf("a\xFFz", 80).Line(0, Plain), "a\uFFFDz");
  EXPECT_EQ(TextOf("\xE2\x82z", 80).Line(0, Plain), "\uFFFDz");
  LiveText half = TextOf("a\xE2", 80);
  EXPECT_EQ(half.Line(0, Plain), "a");
  half.EndCharacter();
  EXPECT_EQ(half.Line(0, Plain), "a\uFFFD");
}

TEST(LiveTextTest, PartsOfATokenMayBeStyledApart) {
  LiveText text;
  text.Append("th", 0, TextPart::kThought);
  text.Append("an", 0, TextPart::kAnswer);
  const auto style = [](Position, TextPart part) {
    return part == TextPart::kThought ? std::string("2") : std::string();
  };
  EXPECT_EQ(text.Line(0, style), "\033[2mth\033[0man");
}

TEST(LiveTextTest, TheAnswerAloneCanBeWritten) {
  LiveText text = TextOf("prompt", 4);
  const size_t begin = text.num_characters();
  text.Append("an\nswer", 1, TextPart::kAnswer);
  EXPECT_EQ(text.From(begin, Plain), "an\nswer");
}

}  // namespace
}  // namespace ebb::cli
