#include "src/server/api/openai/text_bytes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ebb::server {
namespace {

using testing::HasSubstr;

TEST(TextBytesTest, AllTextOfARequestCounts) {
  CompletionRequest request;
  request.chat.messages = {{"user", "1234"}, {"assistant", "56"}};
  request.chat.messages[1].reasoning_content = "789";
  request.chat.messages[1].tool_calls.push_back({.name = "f", .arguments = "{}"});
  EXPECT_EQ(TextBytes(request), 11u);
  CompletionRequest texts = {.endpoint = Endpoint::kText};
  texts.prompts = {{"12"}, {"345", std::vector<Token>{1, 2}}};
  EXPECT_EQ(TextBytes(texts), 5u);
}

TEST(TextBytesTest, APromptThatCannotFitIsRefusedByItsBytes) {
  constexpr int kContext = 100;
  constexpr size_t kPerToken = 10;
  CompletionRequest request;
  request.chat.messages = {{"user", std::string(500, 'x')}, {"tool", std::string(499, 'x')}};
  EXPECT_FALSE(CheckTextFits(request, kPerToken, kContext).has_value());
  request.chat.messages.push_back({"assistant", std::string(5000, 'x')});
  request.chat.messages.push_back({"system", std::string(5000, 'x')});
  EXPECT_FALSE(CheckTextFits(request, kPerToken, kContext).has_value())
      << "templates leave thoughts out";
  request.chat.messages.push_back({"user", "x"});
  const auto error = CheckTextFits(request, kPerToken, kContext);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->code, "context_length_exceeded");
  EXPECT_EQ(error->param, "messages");
  EXPECT_THAT(error->message,
              HasSubstr("1000 bytes, at least 100 tokens, which exceeds the available "
                        "context size of 100 tokens"));
  request.session.past_context = PastContext::kReRotate;
  EXPECT_FALSE(CheckTextFits(request, kPerToken, kContext).has_value()) << "it has no end";
}

TEST(TextBytesTest, EachOfSeveralPromptsHasTheContextForItself) {
  CompletionRequest request = {.endpoint = Endpoint::kText};
  request.prompt_field = "prompt";
  request.prompts = {{std::string(999, 'x')}, {std::string(999, 'x')}};
  EXPECT_FALSE(CheckTextFits(request, 10, 100).has_value());
  request.prompts.push_back({std::string(1000, 'x')});
  EXPECT_EQ(CheckTextFits(request, 10, 100)->param, "prompt");
}

}  // namespace
}  // namespace ebb::server
