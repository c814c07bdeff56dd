// A server's record of a session besides its rows: the messages of both sides, the newest answer as
// far as it came, and how the next request goes on from there. Pure; docs/user/serve.md tells the
// rules to those who write clients.
//
// The session's tokens are the truth: messages that it has read are never read again, and what a
// client sends of them is only compared.
#ifndef EBB_SERVER_ENGINE_SESSION_RECORD_H_
#define EBB_SERVER_ENGINE_SESSION_RECORD_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/chat.h"
#include "ebb/generate.h"
#include "ebb/status.h"
#include "ebb/types.h"

namespace ebb::server {

struct SessionRecord {
  std::vector<ChatMessage> before = {};  // of the turns before the newest, answers among them
  // The newest turn. Without one, `asked` is empty.
  std::vector<ChatMessage> asked = {};
  Position turn_begin = 0;       // tokens of the session before it
  std::vector<Token> lead = {};  // between those and its messages: the end of the answer before
  AnswerSoFar answer = {};       // its tokens; text_bytes is not used
  int thought_tokens = 0;        // of them
  bool is_over = false;          // else it was cut off, and can go on
  std::string sampler = {};      // SavedState() behind the last token of an answer that can go on
  // An answer that is over.
  ChatMessage said = {};
  std::string text = {};  // with the thought, tags and all
  size_t thought_bytes = 0;
  FinishReason finish = FinishReason::kStop;
  uint64_t logits_hash = 0;
  int64_t num_tokens = 0;     // of the session when this was written
  std::string file_tag = {};  // random, equal in the record and in the session file saved with it

  // Returns the messages of both sides, without an answer that was cut off.
  [[nodiscard]] std::vector<ChatMessage> AllMessages() const;
  // The session has read the last token of its answer.
  [[nodiscard]] bool has_read_answer() const {
    return num_tokens >= answer.begin + static_cast<int64_t>(answer.tokens.size());
  }
};

[[nodiscard]] std::string EncodeRecord(const SessionRecord& record);
// Errors: Corrupt.
[[nodiscard]] Result<SessionRecord> DecodeRecord(std::string_view bytes);

// An answer as its client got it: with ids for calls to which the model gave none. call_seed:
// CallIdSeed().
[[nodiscard]] ChatMessage AnswerSaid(const ChatPrompt& prompt, const GenerateResult& result,
                                     uint64_t call_seed);

// The record with the newest turn, which is over or given up, among those before it. cut_off: the
// text of the newest answer, if it is incomplete.
[[nodiscard]] SessionRecord WithTurnEnded(SessionRecord record, const ChatMessage& cut_off);

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_SESSION_RECORD_H_
