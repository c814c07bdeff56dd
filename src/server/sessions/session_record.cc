#include "src/server/sessions/session_record.h"
#include "ebb/generate.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "ebb/state.h"

namespace ebb::server {
namespace {

constexpr uint32_t kVersion = 2;
constexpr std::string_view kBlanks = " \t\r\n";

std::string_view Trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

// Clients leave thoughts out or send them back, and trim what they show.
bool AreAlike(const ChatMessage& a, const ChatMessage& b) {
  const auto role = [](const ChatMessage& m) {
    return m.role == "developer" ? std::string_view("system") : std::string_view(m.role);
  };
  return role(a) == role(b) && Trimmed(a.content) == Trimmed(b.content) &&
         a.tool_calls == b.tool_calls && a.tool_call_id == b.tool_call_id;
}

// How many messages `a` and `b` have in common from the first on.
size_t NumAlike(std::span<const ChatMessage> a, std::span<const ChatMessage> b) {
  size_t count = 0;
  while (count < std::min(a.size(), b.size()) && AreAlike(a[count], b[count])) ++count;
  return count;
}

bool BeginsWith(std::span<const ChatMessage> messages, std::span<const ChatMessage> begin) {
  return NumAlike(messages, begin) == begin.size();
}

bool IsFromAssistant(const ChatMessage& message) { return message.role == "assistant"; }

std::vector<ChatMessage> Behind(std::span<const ChatMessage> messages, size_t count) {
  const auto rest = messages.subspan(count);
  return {rest.begin(), rest.end()};
}

ApiError Differs(std::span<const ChatMessage> known, std::span<const ChatMessage> messages) {
  const size_t same = NumAlike(known, messages);
  std::string message =
      same == messages.size()
          ? fmt::format(
                "messages: the session has {} messages, and the request only the first {} of them",
                known.size(), same)
          : fmt::format("messages[{}] differs from what the session holds", same);
  message +=
      "; send all of its messages followed by the new ones, or the new ones alone, or begin "
      "another session";
  return {.status = 409,
          .message = message,
          .code = "session_conflict",
          .param = "messages",
          .is_final = true};
}

std::vector<ChatMessage> AllOf(const SessionRecord& record) {
  std::vector<ChatMessage> all = record.before;
  all.insert(all.end(), record.asked.begin(), record.asked.end());
  if (record.is_over) all.push_back(record.said);
  return all;
}

// Without the system message that the session begins with, which some clients send each time.
std::span<const ChatMessage> WithoutSystem(std::span<const ChatMessage> messages,
                                           const std::vector<ChatMessage>& known) {
  const bool begins_alike =
      !messages.empty() && !known.empty() && AreAlike(messages.front(), known.front()) &&
      AreAlike(known.front(), {.role = "system", .content = known.front().content});
  return begins_alike ? messages.subspan(1) : messages;
}

ApiError NothingToAnswer() {
  return Invalid("messages: expected a new message after the last answer of the session",
                 "messages");
}

}  // namespace

std::string EncodeRecord(const SessionRecord& r) {
  Conversation talk;
  talk.request.messages = AllOf(r);
  talk.last = {.so_far = r.answer, .sampler = r.sampler};
  talk.last_is_over = r.is_over;
  StateWriter to;
  to.Number<uint32_t>(kVersion);
  to.Text(EncodeConversation(talk));
  to.Number<uint64_t>(r.before.size());
  to.Number<uint64_t>(r.asked.size());
  to.Number<int32_t>(r.turn_begin);
  to.Numbers<Token>(r.lead);
  to.Number<int32_t>(r.thought_tokens);
  to.Text(r.text);
  to.Number<uint64_t>(r.thought_bytes);
  to.Number<uint8_t>(static_cast<uint8_t>(r.finish));
  to.Number<uint64_t>(r.logits_hash);
  to.Number<int64_t>(r.num_tokens);
  to.Text(r.file_tag);
  return to.text();
}

Result<SessionRecord> DecodeRecord(std::string_view bytes) {
  StateReader from(std::as_bytes(std::span(bytes)), "the record of a session");
  const auto version = from.Number<uint32_t>();
  EBB_RETURN_IF_ERROR(from.status());
  if (version != kVersion) {
    return Unsupported(
        fmt::format("the session was stored by another version of ebb (record "
                    "format {}, this one reads {}); delete it and begin a new one",
                    version, kVersion));
  }
  const std::string encoded = from.Text();
  EBB_RETURN_IF_ERROR(from.status());
  EBB_ASSIGN_OR_RETURN(Conversation talk, DecodeConversation(encoded));
  SessionRecord r;
  r.is_over = talk.last_is_over;
  r.answer = std::move(talk.last.so_far);
  r.sampler = std::move(talk.last.sampler);
  const auto num_before = from.Number<uint64_t>();
  const auto num_asked = from.Number<uint64_t>();
  r.turn_begin = from.Number<int32_t>();
  r.lead = from.Numbers<Token>();
  r.thought_tokens = from.Number<int32_t>();
  r.text = from.Text();
  r.thought_bytes = from.Number<uint64_t>();
  const auto finish = from.Number<uint8_t>();
  r.logits_hash = from.Number<uint64_t>();
  r.num_tokens = from.Number<int64_t>();
  r.file_tag = from.Text();
  std::vector<ChatMessage>& all = talk.request.messages;
  const uint64_t num_said = r.is_over ? 1 : 0;
  if (num_before > all.size() || num_asked > all.size() ||
      num_before + num_asked + num_said != all.size()) {
    from.Fail("its messages do not add up");
  }
  if (finish > static_cast<uint8_t>(FinishReason::kError)) from.Fail("no such end");
  if (r.thought_bytes > r.text.size()) from.Fail("a thought longer than its answer");
  if (r.turn_begin < 0 || r.turn_begin > r.num_tokens) from.Fail("a turn behind its session");
  EBB_RETURN_IF_ERROR(from.End());
  r.finish = static_cast<FinishReason>(finish);
  const auto asked = all.begin() + static_cast<std::ptrdiff_t>(num_before);
  const auto said = asked + static_cast<std::ptrdiff_t>(num_asked);
  r.before.assign(all.begin(), asked);
  r.asked.assign(asked, said);
  if (r.is_over) r.said = *said;
  return r;
}

ApiResult<TurnWanted> CompareMessages(const SessionRecord& record,
                                      std::span<const ChatMessage> messages) {
  using Kind = TurnWanted::Kind;
  const std::vector<ChatMessage> all = AllOf(record);
  if (record.asked.empty()) return TurnWanted{Kind::kNew, Behind(messages, 0)};
  const size_t num_before = record.before.size();
  if (BeginsWith(messages, record.before)) {
    const auto newest = messages.subspan(num_before);
    if (newest.size() == record.asked.size() && BeginsWith(newest, record.asked)) {
      return TurnWanted{record.is_over ? Kind::kSayAgain : Kind::kContinue, {}};
    }
  }
  if (record.is_over && BeginsWith(messages, all)) {
    if (messages.size() == all.size()) return NothingToAnswer();
    return TurnWanted{Kind::kNew, Behind(messages, all.size())};
  }
  const auto fresh = WithoutSystem(messages, all);
  const bool are_new = std::ranges::none_of(fresh, IsFromAssistant);
  const bool has_begin = num_before > 0 && BeginsWith(messages, record.before);
  if (are_new && !has_begin) {
    if (fresh.empty()) return NothingToAnswer();
    const bool asks_again =
        !record.is_over && fresh.size() == record.asked.size() && BeginsWith(fresh, record.asked);
    if (asks_again) return TurnWanted{Kind::kContinue, {}};
    return TurnWanted{Kind::kNew, {fresh.begin(), fresh.end()}};
  }
  // The newest turn was edited, or its answer was.
  if (BeginsWith(messages, record.before) && messages.size() > num_before) {
    return TurnWanted{Kind::kInstead, Behind(messages, num_before)};
  }
  return Differs(all, messages);
}

ApiResult<TurnWanted> CompareHistory(const SessionRecord& record,
                                     std::span<const ChatMessage> messages) {
  const std::vector<ChatMessage> all = AllOf(record);
  const bool is_whole = all.empty() || record.is_over;
  if (!is_whole || !BeginsWith(messages, all) || messages.size() == all.size()) {
    return Differs(all, messages);
  }
  return TurnWanted{TurnWanted::Kind::kNew, Behind(messages, all.size())};
}

ChatMessage AnswerSaid(const ChatPrompt& prompt, const GenerateResult& result, uint64_t call_seed) {
  Result<ChatMessage> message = AnswerMessage(prompt, result);
  // An answer in no known format is content, as it was sent.
  if (!message.ok()) {
    return {.role = "assistant", .content = result.text.substr(result.thought_bytes)};
  }
  SetCallIds(call_seed, &message->tool_calls);
  return *std::move(message);
}

SessionRecord WithTurnEnded(SessionRecord record, const ChatMessage& cut_off) {
  SessionRecord next;
  next.before = std::move(record.before);
  std::ranges::move(record.asked, std::back_inserter(next.before));
  if (!next.before.empty()) next.before.push_back(record.is_over ? record.said : cut_off);
  next.turn_begin = static_cast<Position>(record.num_tokens);
  next.num_tokens = record.num_tokens;
  return next;
}

}  // namespace ebb::server
