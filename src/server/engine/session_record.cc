#include "src/server/engine/session_record.h"
#include "ebb/generate.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "ebb/state.h"

namespace ebb::server {
namespace {

constexpr uint32_t kRecordVersion = 3;
}  // namespace

std::vector<ChatMessage> SessionRecord::AllMessages() const {
  std::vector<ChatMessage> all = before;
  all.insert(all.end(), asked.begin(), asked.end());
  if (is_over) all.push_back(said);
  return all;
}

std::string EncodeRecord(const SessionRecord& r) {
  Conversation talk;
  talk.request.messages = r.AllMessages();
  talk.last = {.so_far = r.answer, .sampler = r.sampler};
  talk.last_is_over = r.is_over;
  StateWriter to;
  to.Number<uint32_t>(kRecordVersion);
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
  if (version != kRecordVersion) {
    return Unsupported(
        fmt::format("the session was stored by another version of ebb (record "
                    "format {}, this one reads {}); delete it and begin a new one",
                    version, kRecordVersion));
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

ChatMessage AnswerSaid(const ChatPrompt& prompt, const GenerateResult& result, uint64_t call_seed) {
  Result<ChatMessage> message = AnswerMessage(prompt, result);
  // An answer whose format is not recognised becomes content, as it was sent.
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
