#include "src/server/sessions/session_turn.h"

#include <gtest/gtest.h>

namespace ebb::server {
namespace {

std::string Refusal(const std::string& header, bool has_sessions, CompletionRequest request) {
  const std::optional<ApiError> error = TakeSessionHeader(header, has_sessions, &request);
  EXPECT_TRUE(!error.has_value() || error->status == 400);
  return error.has_value() ? error->message : "";
}

TEST(TakeSessionHeader, NamesTheSessionOrSaysWhyItCannot) {
  CompletionRequest chat;
  chat.endpoint = Endpoint::kChat;
  EXPECT_EQ(Refusal("", false, chat), "");
  EXPECT_EQ(Refusal("s", true, chat), "");
  EXPECT_EQ(Refusal("a/b", true, chat),
            "session_id: expected 1 to 64 letters, digits, '-', '_' and ':'");
  EXPECT_EQ(Refusal("s", false, chat),
            "session_id: this server keeps no sessions; start it with --sessions");
  CompletionRequest named = chat;
  named.session_id = "s";
  EXPECT_EQ(Refusal("s", true, named), "");
  EXPECT_EQ(Refusal("other", true, named), "session_id: differs from the header X-Session-Id");
  CompletionRequest two = chat;
  two.num_choices = 2;
  EXPECT_EQ(Refusal("s", true, two), "n: expected 1 answer in a session; fork it for others");
  CompletionRequest text = chat;
  text.endpoint = Endpoint::kText;
  EXPECT_EQ(Refusal("s", true, text),
            "session_id: expected a chat; other endpoints have no sessions");
  CompletionRequest rotating = chat;
  rotating.session.past_context = PastContext::kReRotate;
  EXPECT_EQ(Refusal("s", true, rotating),
            "session_id: cannot be combined with a context that re-rotates keys");
}

TEST(TakeBegunAnswer, RefusesToContinueAnAnswerOfASession) {
  CompletionRequest request;
  request.session_id = "s";
  request.begun = ChatMessage{.role = "assistant", .content = "It"};
  request.must_continue = true;
  const std::optional<ApiError> error = TakeBegunAnswer(&request);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->param, "continue_final_message");
  EXPECT_EQ(error->message,
            "continue_final_message: cannot be combined with a session, which continues its last "
            "answer by itself");
}

}  // namespace
}  // namespace ebb::server
