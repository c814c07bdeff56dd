#include "src/base/text/utf8.h"

#include <gtest/gtest.h>

#include <string>

namespace ebb {
namespace {

const std::string kTwo = "\u00e9", kThree = "\u20ac", kFour = "\U0001f600";

TEST(Utf8, KnowsTheLengthsOfCharacters) {
  EXPECT_EQ(Utf8Length('a'), 1u);
  EXPECT_EQ(Utf8Length(kTwo[0]), 2u);
  EXPECT_EQ(Utf8Length(kThree[0]), 3u);
  EXPECT_EQ(Utf8Length(kFour[0]), 4u);
  for (const char byte : {'\x80', '\xbf', '\xc0', '\xc1', '\xf5', '\xff'}) {
    EXPECT_EQ(Utf8Length(byte), 0u) << static_cast<int>(byte);
  }
  EXPECT_TRUE(ContinuesUtf8(kFour[3]));
  EXPECT_FALSE(ContinuesUtf8(kFour[0]));
}

TEST(Utf8, FindsCharactersThatAreNotComplete) {
  for (const std::string& character : {kTwo, kThree, kFour}) {
    for (size_t size = 1; size < character.size(); ++size) {
      EXPECT_EQ(IncompleteUtf8Suffix("ab" + character.substr(0, size)), size);
    }
    EXPECT_EQ(IncompleteUtf8Suffix("ab" + character), 0u);
  }
  EXPECT_EQ(IncompleteUtf8Suffix(""), 0u);
  EXPECT_EQ(IncompleteUtf8Suffix("a\x80\x80"), 0u);
  EXPECT_EQ(IncompleteUtf8Suffix("a\xff"), 0u);
}

TEST(Utf8, CutsBetweenCharacters) {
  const std::string text = "a" + kThree + kFour;
  EXPECT_EQ(Utf8Prefix(text, 8), text);
  for (const size_t most : {4u, 5u, 7u}) EXPECT_EQ(Utf8Prefix(text, most), "a" + kThree);
  for (const size_t most : {1u, 3u}) EXPECT_EQ(Utf8Prefix(text, most), "a");
  EXPECT_EQ(Utf8Prefix(text, 0), "");
}

}  // namespace
}  // namespace ebb
