#include "apps/common/models/gguf_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

namespace ebb::cli {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(GgufNamesTest, PartsAreNumberedFromOneAndBelongToAStem) {
  const auto part = ParseSplitName("Q8/tide-Q8_0-00002-of-00003.gguf");
  ASSERT_TRUE(part.has_value());
  EXPECT_EQ(part->stem, "Q8/tide-Q8_0");
  EXPECT_EQ(part->index, 2);
  EXPECT_EQ(part->count, 3);
  EXPECT_EQ(PartName(*part, 3), "Q8/tide-Q8_0-00003-of-00003.gguf");
  const auto whole = ParseSplitName("tide-00002-of-3.gguf");
  ASSERT_TRUE(whole.has_value());
  EXPECT_EQ(whole->count, 1);
  EXPECT_EQ(PartName(*whole, 1), "tide-00002-of-3.gguf");
  for (const char* bad : {"tide-00000-of-00003.gguf", "tide-00004-of-00003.gguf",
                          "tide-00001-of-00000.gguf", "tide.bin"}) {
    EXPECT_FALSE(ParseSplitName(bad).has_value()) << bad;
  }
}

TEST(GgufNamesTest, TheTagIsTheLastPartOfTheName) {
  EXPECT_EQ(QuantTag("tide-7b-q4_k_m.gguf"), "Q4_K_M");
  EXPECT_EQ(QuantTag("tide.IQ2_XXS.gguf"), "IQ2_XXS");
  EXPECT_EQ(QuantTag("BF16/tide-BF16-00001-of-00002.gguf"), "BF16");
  EXPECT_EQ(QuantTag("gpt-oss-20b-mxfp4.gguf"), "MXFP4");
  EXPECT_EQ(QuantTag("tide-F16.gguf"), "F16");
  EXPECT_EQ(QuantTag("Qwen3.gguf"), "");
  EXPECT_EQ(QuantTag("tide-chat.gguf"), "");
  EXPECT_EQ(QuantTag("Q8_0.gguf"), "");  // no model's name before it
}

TEST(GgufNamesTest, ChoosesAsLlamaCppDoes) {
  const std::vector<std::string> files = {"README.md",
                                          "mmproj-tide-Q4_K_M.gguf",
                                          "tide-BF16-00001-of-00002.gguf",
                                          "tide-BF16-00002-of-00002.gguf",
                                          "tide-Q4_K_M.gguf",
                                          "tide-Q4_K_S.gguf",
                                          "tide-q8_0.gguf"};
  EXPECT_EQ(ChooseModelFile(files, ""), "tide-Q4_K_M.gguf");
  EXPECT_EQ(ChooseModelFile(files, "q4_k_s"), "tide-Q4_K_S.gguf");
  EXPECT_EQ(ChooseModelFile(files, "Q8_0"), "tide-q8_0.gguf");
  EXPECT_EQ(ChooseModelFile(files, "bf16"), "tide-BF16-00001-of-00002.gguf");
  EXPECT_EQ(ChooseModelFile(files, "Q4"), std::nullopt);
  EXPECT_EQ(ChooseModelFile(files, "Q5_K_M"), std::nullopt);
  const std::vector<std::string> without = {"tide-F16.gguf", "tide-Q8_0.gguf"};
  EXPECT_EQ(ChooseModelFile(without, ""), "tide-Q8_0.gguf");
  const std::vector<std::string> odd = {"mmproj.gguf", "b-Q5_0.gguf", "c-Q5_1.gguf"};
  EXPECT_EQ(ChooseModelFile(odd, ""), "b-Q5_0.gguf");
  EXPECT_EQ(ChooseModelFile(std::vector<std::string>{"mmproj.gguf"}, ""), std::nullopt);
  EXPECT_THAT(QuantTags(files), ElementsAre("BF16", "Q4_K_M", "Q4_K_S", "Q8_0"));
  EXPECT_TRUE(IsFirstChoice("tide-q4_k_m.gguf", ""));
  EXPECT_FALSE(IsFirstChoice("tide-Q8_0.gguf", ""));
}

TEST(GgufNamesTest, APathStaysInItsFolder) {
  for (const char* good : {"a.gguf", "a/b.gguf", "..a/b..gguf", "\xc3\xa4.gguf"}) {
    EXPECT_TRUE(IsSafePath(good)) << good;
  }
  for (const char* bad : {"", "/a.gguf", "../a.gguf", "a/../b.gguf", "a//b.gguf", "a/", "./a.gguf",
                          "a\\b.gguf", "a\nb.gguf", "a/.."}) {
    EXPECT_FALSE(IsSafePath(bad)) << bad;
  }
  EXPECT_FALSE(IsSafePath(std::string("a\0b.gguf", 8)));
  EXPECT_FALSE(IsSafePath(std::string(2000, 'a')));
}

}  // namespace
}  // namespace ebb::cli
