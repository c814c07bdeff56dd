#include "src/server/sessions/session_turn.h"

#include <gtest/gtest.h>

namespace ebb::server {
namespace {

std::string Refusal(const std::string& header, bool has_sessions, CompletionRequest request) {
  const std::optional<ApiError> error = TakeSession({.session = header}, has_sessions, &request);
  EXPECT_TRUE(!error.has_value() || error->status == 400);
  return error.has_value() ? error->message : "";
}

TEST(TakeSession, OfItsOwnNameIsTakenOrRefused) {
  CompletionRequest chat;
  chat.endpoint = Endpoint::kChat;
  EXPECT_EQ(Refusal("", false, chat), "");
  EXPECT_EQ(Refusal("s", true, chat), "");
  EXPECT_EQ(Refusal("a/b", true, chat),
            "ebb.session: expected 1 to 64 letters, digits, '-', '_' and ':'");
  EXPECT_EQ(Refusal("s", false, chat),
            "ebb.session: this server keeps no sessions; start it with --sessions");
  CompletionRequest named = chat;
  named.session_id = "s";
  EXPECT_EQ(Refusal("s", true, named), "");
  EXPECT_EQ(Refusal("other", true, named), "ebb.session: differs from the header X-Ebb-Session");
  CompletionRequest two = chat;
  two.num_choices = 2;
  EXPECT_EQ(Refusal("s", true, two), "n: expected 1 answer in a session; fork it for others");
  CompletionRequest text = chat;
  text.endpoint = Endpoint::kText;
  EXPECT_EQ(Refusal("s", true, text),
            "ebb.session: expected a chat; other endpoints have no sessions");
  CompletionRequest rotating = chat;
  rotating.session.past_context = PastContext::kReRotate;
  EXPECT_EQ(Refusal("s", true, rotating),
            "ebb.session: cannot be combined with a context that re-rotates keys");
}

using Names = std::vector<std::string>;

struct Hinted {
  std::string id;
  Names hints, ignored;
  bool operator==(const Hinted&) const = default;
};

Hinted Take(const SessionHeaders& headers, bool has_sessions, CompletionRequest request) {
  EXPECT_FALSE(TakeSession(headers, has_sessions, &request).has_value());
  return {request.session_id, request.session_hints, request.ignored};
}

TEST(TakeSession, OfAnotherProgramIsAHint) {
  CompletionRequest chat;
  chat.endpoint = Endpoint::kChat;
  EXPECT_EQ(Take({.hint = "s"}, true, chat), (Hinted{"s", {"X-Session-Id"}, {}}));
  // A server without sessions ignores hints, and a hint that is no valid session id is ignored.
  EXPECT_EQ(Take({.hint = "s"}, false, chat), (Hinted{"", {}, {"X-Session-Id"}}));
  for (const char* id : {"a/b", "a.b", "a b", "\xc3\xa4"}) {
    EXPECT_EQ(Take({.hint = id}, true, chat), (Hinted{"", {}, {"X-Session-Id"}})) << id;
  }
  EXPECT_EQ(Take({.hint = std::string(65, 'a')}, true, chat), (Hinted{"", {}, {"X-Session-Id"}}));
  // The member `session_id` is a hint too; if it differs from the header's hint, the header counts
  // and the member is listed as ignored.
  CompletionRequest member = chat;
  member.session_hint = "m";
  EXPECT_EQ(Take({}, true, member), (Hinted{"m", {"session_id"}, {}}));
  EXPECT_EQ(Take({.hint = "m"}, true, member), (Hinted{"m", {"X-Session-Id", "session_id"}, {}}));
  EXPECT_EQ(Take({.hint = "s"}, true, member), (Hinted{"s", {"X-Session-Id"}, {"session_id"}}));
  // X-Ebb-Session takes precedence over hints.
  EXPECT_EQ(Take({.session = "e", .hint = "s"}, true, member),
            (Hinted{"e", {}, {"X-Session-Id", "session_id"}}));
  EXPECT_EQ(Take({.session = "m", .hint = "m"}, true, member), (Hinted{"m", {}, {}}));
}

TEST(TakeSession, AHintForWhatSessionsCannotDoIsIgnored) {
  CompletionRequest two, text, rotating, begun;
  two.num_choices = 2;
  text.endpoint = Endpoint::kText;
  rotating.session.past_context = PastContext::kReRotate;
  begun.begun = ChatMessage{.role = "assistant", .content = "It"};
  for (const CompletionRequest& request : {two, text, rotating, begun}) {
    EXPECT_EQ(Take({.hint = "s"}, true, request), (Hinted{"", {}, {"X-Session-Id"}}));
  }
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
