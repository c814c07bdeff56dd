#include "apps/lab/profile/prompts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ebb::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(ParsePromptsTest, ALineIsAPromptOrAJsonObjectWithOne) {
  const auto prompts = ParsePrompts(
      "plain text\n\n{\"prompt\": \"two\\nlines\"}\r\n{\"question\": \"why?\", \"answer\": 4}");
  ASSERT_TRUE(prompts.ok()) << prompts.status().ToString();
  EXPECT_THAT(*prompts, ElementsAre("plain text", "two\nlines", "why?"));
}

TEST(ParsePromptsTest, AByteOrderMarkIsNoText) {
  const auto prompts = ParsePrompts("\uFEFF{\"prompt\": \"one\"}\ntwo");
  ASSERT_TRUE(prompts.ok()) << prompts.status().ToString();
  EXPECT_THAT(*prompts, ElementsAre("one", "two"));
}

TEST(ParsePromptsTest, ErrorsNameTheLine) {
  for (const char* bad : {"ok\n{\"answer\": 4}", "ok\n{broken", "ok\n{\"prompt\": 4}"}) {
    const auto prompts = ParsePrompts(bad);
    EXPECT_EQ(prompts.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(prompts.status().message(), HasSubstr("line 2")) << bad;
  }
  EXPECT_THAT(ParsePrompts("{\"prompt\": \"\"}").status().message(), HasSubstr("empty prompt"));
  EXPECT_THAT(ParsePrompts("\n \n").status().message(), HasSubstr("found none"));
}

}  // namespace
}  // namespace ebb::cli
