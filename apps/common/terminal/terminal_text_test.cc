#include "apps/common/terminal/terminal_text.h"

#include <gtest/gtest.h>

#include <string>

namespace ebb::cli {
namespace {

TEST(ShownOnTerminal, LeavesTextAlone) {
  for (const std::string text : {"", "tide\n\tebb\n", "\u00E9 \u6F6E \U0001F30A", "\u00A0",
                                 "\u200F\u2065\u206A\u2029\u202F"}) {
    EXPECT_EQ(ShownOnTerminal(text), text);
  }
}

TEST(ShownOnTerminal, ShowsWhatWouldDriveTheTerminal) {
  EXPECT_EQ(ShownOnTerminal("\033]0;title\a\033[2J\b \r!"), "^[]0;title^G^[[2J^H ^M!");
  EXPECT_EQ(ShownOnTerminal(std::string("\0\x1F\x7F", 3)), "^@^_^?");
  EXPECT_EQ(ShownOnTerminal("\u0080\u009B2J\u009F"), "<U+0080><U+009B>2J<U+009F>");
  EXPECT_EQ(ShownOnTerminal("\u202A\u202Eabc\u2066\u2069"), "<U+202A><U+202E>abc<U+2066><U+2069>");
}

TEST(ShownOnTerminal, BytesThatAreNoCharacterBecomeReplacements) {
  EXPECT_EQ(ShownOnTerminal("a\x9B"
                            "2J"),
            "a\uFFFD2J");                                  // C1 of terminals with 8 bits
  EXPECT_EQ(ShownOnTerminal("\xC0\x9B"), "\uFFFD\uFFFD");  // overlong forms of ESC
  EXPECT_EQ(ShownOnTerminal("\xE0\x80\x9B!"), "\uFFFD!");
  EXPECT_EQ(ShownOnTerminal("\xED\xA0\xBD"), "\uFFFD");  // half of a surrogate pair
  EXPECT_EQ(ShownOnTerminal("\xE6\xBDx"), "\uFFFDx");
  EXPECT_EQ(ShownOnTerminal("\xE6\xBD"), "\uFFFD");
}

TEST(ShownOnTerminal, ACarriageReturnOfALineEndIsLeftOut) {
  EXPECT_EQ(ShownOnTerminal("one\r\ntwo\rthree\r"), "one\ntwo^Mthree^M");
}

TEST(TerminalText, PiecesAreShownAsTheWhole) {
  const std::string text = "a\u009Bb\r\n\u202E\r\U0001F30A\xF0\x9F";
  for (size_t size = 1; size < 6; ++size) {
    TerminalText shown;
    std::string all;
    for (size_t at = 0; at < text.size(); at += size) all += shown.Show(text.substr(at, size));
    EXPECT_EQ(all + shown.End(), ShownOnTerminal(text)) << size;
    EXPECT_EQ(shown.End(), "");
  }
}

}  // namespace
}  // namespace ebb::cli
