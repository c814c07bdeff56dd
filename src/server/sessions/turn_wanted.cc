#include "src/server/sessions/turn_wanted.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace ebb::server {
namespace {

constexpr std::string_view kBlanks = " \t\r\n";

std::string_view Trimmed(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kBlanks), text.size()));
  return text.substr(0, text.find_last_not_of(kBlanks) + 1);
}

// Returns whether two messages are the same turn. Thoughts, and blanks around the content, are not
// compared, because clients may omit thoughts and trim text.
bool SayTheSame(const ChatMessage& a, const ChatMessage& b) {
  const auto role = [](const ChatMessage& m) {
    return m.role == "developer" ? std::string_view("system") : std::string_view(m.role);
  };
  return role(a) == role(b) && Trimmed(a.content) == Trimmed(b.content) &&
         a.tool_calls == b.tool_calls && a.tool_call_id == b.tool_call_id;
}

// Returns how many messages `a` and `b` share, from the first one on.
size_t NumInCommon(std::span<const ChatMessage> a, std::span<const ChatMessage> b) {
  size_t count = 0;
  while (count < std::min(a.size(), b.size()) && SayTheSame(a[count], b[count])) ++count;
  return count;
}

bool BeginsWith(std::span<const ChatMessage> messages, std::span<const ChatMessage> begin) {
  return NumInCommon(messages, begin) == begin.size();
}

bool IsFromAssistant(const ChatMessage& message) { return message.role == "assistant"; }

std::vector<ChatMessage> Behind(std::span<const ChatMessage> messages, size_t count) {
  const auto rest = messages.subspan(count);
  return {rest.begin(), rest.end()};
}

ApiError Differs(std::span<const ChatMessage> known, std::span<const ChatMessage> messages) {
  const size_t same = NumInCommon(known, messages);
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

// Returns `messages` without a leading system message equal to the session's, which some clients
// send with each request.
std::span<const ChatMessage> WithoutSystem(std::span<const ChatMessage> messages,
                                           const std::vector<ChatMessage>& known) {
  const bool begins_the_same =
      !messages.empty() && !known.empty() && SayTheSame(messages.front(), known.front()) &&
      SayTheSame(known.front(), {.role = "system", .content = known.front().content});
  return begins_the_same ? messages.subspan(1) : messages;
}

ApiError NothingToAnswer() {
  return Invalid("messages: expected a new message after the last answer of the session",
                 "messages");
}

}  // namespace

ApiResult<TurnWanted> CompareMessages(const SessionRecord& record,
                                      std::span<const ChatMessage> messages) {
  using Kind = TurnWanted::Kind;
  const std::vector<ChatMessage> all = record.AllMessages();
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
  // The client has edited the newest turn or its answer.
  if (BeginsWith(messages, record.before) && messages.size() > num_before) {
    return TurnWanted{Kind::kInstead, Behind(messages, num_before)};
  }
  return Differs(all, messages);
}

ApiResult<TurnWanted> CompareHistory(const SessionRecord& record,
                                     std::span<const ChatMessage> messages) {
  const std::vector<ChatMessage> all = record.AllMessages();
  const bool is_whole = all.empty() || record.is_over;
  if (!is_whole || !BeginsWith(messages, all) || messages.size() == all.size()) {
    return Differs(all, messages);
  }
  return TurnWanted{TurnWanted::Kind::kNew, Behind(messages, all.size())};
}

}  // namespace ebb::server
