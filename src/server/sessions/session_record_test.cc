#include "src/server/engine/session_record.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "src/server/sessions/turn_wanted.h"

namespace ebb::server {
namespace {

using testing::HasSubstr;
using Kind = TurnWanted::Kind;

ChatMessage User(const std::string& text) { return {.role = "user", .content = text}; }
ChatMessage Said(const std::string& text) { return {.role = "assistant", .content = text}; }

// Returns a record of two turns: q1, a1, q2 and, if `is_over`, a2.
SessionRecord TwoTurns(bool is_over) {
  SessionRecord record;
  record.before = {User("q1"), Said("a1")};
  record.asked = {User("q2")};
  record.turn_begin = 10;
  record.lead = {4, 5};
  record.answer = {.begin = 20, .tokens = {7, 8, 9}, .text_bytes = 0};
  record.thought_tokens = 2;
  record.is_over = is_over;
  record.num_tokens = 22;
  if (is_over) {
    record.said = Said("a2");
    record.text = "<think>t</think>a2";
    record.thought_bytes = 16;
    record.finish = FinishReason::kLength;
    record.logits_hash = 77;
  } else {
    record.sampler = "state";
  }
  return record;
}
SessionRecord OneTurn() {
  SessionRecord record;
  record.asked = {{.role = "system", .content = "s"}, User("q1")};
  record.is_over = true;
  record.said = Said("a1");
  record.answer.tokens = {1};
  return record;
}

TurnWanted Compared(const SessionRecord& record, const std::vector<ChatMessage>& messages) {
  const auto result = CompareMessages(record, messages);
  EXPECT_TRUE(result.ok()) << result.error().message;
  return result.ok() ? *result : TurnWanted();
}
ApiError Refused(const SessionRecord& record, const std::vector<ChatMessage>& messages) {
  const auto result = CompareMessages(record, messages);
  EXPECT_FALSE(result.ok());
  return result.ok() ? ApiError() : result.error();
}
std::string TextsOf(const TurnWanted& wanted) {
  std::string texts;
  for (const ChatMessage& message : wanted.messages) texts += message.content + " ";
  return texts;
}

TEST(SessionRecordTest, IsWhatWasEncoded) {
  for (const bool is_over : {false, true}) {
    const SessionRecord record = TwoTurns(is_over);
    const auto decoded = DecodeRecord(EncodeRecord(record));
    ASSERT_TRUE(decoded.ok()) << decoded.status().ToString();
    EXPECT_EQ(decoded->before.size(), 2u);
    ASSERT_EQ(decoded->asked.size(), 1u);
    EXPECT_EQ(decoded->asked[0].content, "q2");
    EXPECT_EQ(decoded->turn_begin, 10);
    EXPECT_EQ(decoded->lead, record.lead);
    EXPECT_EQ(decoded->answer.begin, 20);
    EXPECT_EQ(decoded->answer.tokens, record.answer.tokens);
    EXPECT_EQ(decoded->thought_tokens, 2);
    EXPECT_EQ(decoded->is_over, is_over);
    EXPECT_EQ(decoded->said.content, record.said.content);
    EXPECT_EQ(decoded->text, record.text);
    EXPECT_EQ(decoded->thought_bytes, record.thought_bytes);
    EXPECT_EQ(decoded->finish, record.finish);
    EXPECT_EQ(decoded->logits_hash, record.logits_hash);
    EXPECT_EQ(decoded->sampler, record.sampler);
    EXPECT_FALSE(decoded->has_read_answer());
  }
}

TEST(SessionRecordTest, BytesThatAreCutOffOrChangedAreNone) {
  const std::string bytes = EncodeRecord(TwoTurns(true));
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(DecodeRecord(std::string_view(bytes).substr(0, size)).ok()) << size;
  }
  EXPECT_FALSE(DecodeRecord(bytes + "x").ok());
  // With any byte changed, the record must either decode to a valid one or give an error.
  for (size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 0x81);
    const auto decoded = DecodeRecord(changed);
    if (!decoded.ok()) {
      const bool is_version = i < sizeof(uint32_t);
      EXPECT_EQ(decoded.status().code(),
                is_version ? StatusCode::kUnsupported : StatusCode::kCorrupt);
    }
  }
}

TEST(SessionRecordTest, ASessionWithoutTurnsTakesAllMessages) {
  const TurnWanted wanted = Compared({}, {User("q1"), Said("a1"), User("q2")});
  EXPECT_EQ(wanted.kind, Kind::kNew);
  EXPECT_EQ(TextsOf(wanted), "q1 a1 q2 ");
}

TEST(SessionRecordTest, AWholeHistoryBeginsWithAllOfTheSession) {
  const SessionRecord over = TwoTurns(true), cut_off = TwoTurns(false);
  const std::vector<ChatMessage> known = {User("q1"), Said("a1"), User("q2"), Said("a2")};
  std::vector<ChatMessage> more = known;
  more.push_back(User("q3"));
  const auto wanted = CompareHistory(over, more);
  ASSERT_TRUE(wanted.ok()) << wanted.error().message;
  EXPECT_EQ(wanted->kind, Kind::kNew);
  EXPECT_EQ(TextsOf(*wanted), "q3 ");
  const auto first = CompareHistory({}, known);
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_EQ(TextsOf(*first), "q1 a1 q2 a2 ");
  // Tries only new messages, the same messages again, an edited history, a shorter one, and a
  // different one.
  for (const std::vector<ChatMessage>& messages : std::vector<std::vector<ChatMessage>>{
           {User("q3")},
           known,
           {User("q1"), Said("a1"), User("q2")},
           {User("q1"), Said("a1"), User("q2"), Said("other"), User("q3")},
           {User("q2"), Said("a2"), User("q3")},
           {User("a title for q1, please")}}) {
    const auto refused = CompareHistory(over, messages);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, "session_conflict");
  }
  EXPECT_FALSE(CompareHistory(cut_off, more).ok());
}

TEST(SessionRecordTest, NewMessagesAreThoseBehindTheKnownOnes) {
  const SessionRecord record = TwoTurns(true);
  TurnWanted wanted =
      Compared(record, {User("q1"), Said("a1"), User("q2"), Said(" a2\n"), User("q3")});
  EXPECT_EQ(wanted.kind, Kind::kNew);
  EXPECT_EQ(TextsOf(wanted), "q3 ");
  // The client sends only the new messages.
  wanted = Compared(record, {User("q3"), User("q4")});
  EXPECT_EQ(wanted.kind, Kind::kNew);
  EXPECT_EQ(TextsOf(wanted), "q3 q4 ");
  wanted = Compared(record, {User("q2")});
  EXPECT_EQ(wanted.kind, Kind::kNew);
  // The client sends the new messages and the session's system message.
  wanted = Compared(OneTurn(), {{.role = "developer", .content = "s"}, User("q2")});
  EXPECT_EQ(wanted.kind, Kind::kNew);
  EXPECT_EQ(TextsOf(wanted), "q2 ");
}

TEST(SessionRecordTest, TheSameMessagesAgainGetTheSameAnswer) {
  const std::vector<ChatMessage> messages = {User("q1"), Said("a1"), User("q2")};
  EXPECT_EQ(Compared(TwoTurns(true), messages).kind, Kind::kSayAgain);
  EXPECT_EQ(Compared(TwoTurns(false), messages).kind, Kind::kContinue);
  EXPECT_EQ(Compared(TwoTurns(false), {User("q2")}).kind, Kind::kContinue);
  EXPECT_EQ(Compared(OneTurn(), OneTurn().asked).kind, Kind::kSayAgain);
}

TEST(SessionRecordTest, AnEditedTurnTakesThePlaceOfTheNewest) {
  for (const bool is_over : {false, true}) {
    TurnWanted wanted = Compared(TwoTurns(is_over), {User("q1"), Said("a1"), User("other")});
    EXPECT_EQ(wanted.kind, Kind::kInstead);
    EXPECT_EQ(TextsOf(wanted), "other ");
    wanted = Compared(TwoTurns(is_over),
                      {User("q1"), Said("a1"), User("q2"), Said("edited"), User("q3")});
    EXPECT_EQ(wanted.kind, Kind::kInstead);
    EXPECT_EQ(TextsOf(wanted), "q2 edited q3 ");
  }
}

TEST(SessionRecordTest, OtherConversationsAreRefused) {
  ApiError error = Refused(TwoTurns(true), {User("q1"), Said("else"), User("q2")});
  EXPECT_EQ(error.status, 409);
  EXPECT_EQ(error.code, "session_conflict");
  EXPECT_THAT(error.message, HasSubstr("messages[1] differs"));
  error = Refused(TwoTurns(true), {User("q1"), Said("a1")});
  EXPECT_THAT(error.message, HasSubstr("has 4 messages, and the request only the first 2 of them"));
  error = Refused(TwoTurns(true), {User("q1"), Said("a1"), User("q2"), Said("a2")});
  EXPECT_EQ(error.status, 400);
  EXPECT_EQ(error.message, "messages: expected a new message after the last answer of the session");
  EXPECT_EQ(Refused(TwoTurns(true), {}).status, 400);
  // A tool call that the client has changed makes the message a different one.
  SessionRecord calls = TwoTurns(true);
  calls.before[1].tool_calls = {{.name = "f", .arguments = "{}", .id = "call00000"}};
  std::vector<ChatMessage> messages = {User("q1"), calls.before[1], User("q2"), Said("a2"),
                                       User("q3")};
  EXPECT_EQ(TextsOf(Compared(calls, messages)), "q3 ");
  messages[1].tool_calls[0].arguments = "{\"x\":1}";
  EXPECT_THAT(Refused(calls, messages).message, HasSubstr("messages[1] differs"));
}

TEST(SessionRecordTest, ATurnThatEndedJoinsThoseBefore) {
  SessionRecord next = WithTurnEnded(TwoTurns(true), Said("cut"));
  ASSERT_EQ(next.before.size(), 4u);
  EXPECT_EQ(next.before[3].content, "a2");
  EXPECT_EQ(next.turn_begin, 22);
  EXPECT_TRUE(next.asked.empty());
  next = WithTurnEnded(TwoTurns(false), Said("cut"));
  EXPECT_EQ(next.before[3].content, "cut");
}

}  // namespace
}  // namespace ebb::server
