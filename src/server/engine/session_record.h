// SessionRecord is a server's record of a session besides its rows: the messages of both sides, the
// newest answer as far as it was generated, and the state from which the next request continues.
// Pure. docs/user/serve.md explains the rules to authors of clients.
//
// The session's tokens are authoritative: the server never reads messages into the session again
// that it has read; it only compares them with what a client sends.
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
  // messages of the turns before the newest, with their answers
  std::vector<ChatMessage> before = {};
  // Holds the client's messages of the newest turn; empty if there is no turn.
  std::vector<ChatMessage> asked = {};
  Position turn_begin = 0;       // tokens of the session before the newest turn
  std::vector<Token> lead = {};  // the end of the previous answer, read before the turn's messages
  AnswerSoFar answer = {};       // text_bytes is not used
  int thought_tokens = 0;        // thought tokens of `answer`
  bool is_over = false;          // false: the answer was cut off and can continue
  std::string sampler = {};      // SavedState() after the last token of an answer that can continue
  // Holds the finished answer as a message. It and the three members below are valid if is_over.
  ChatMessage said = {};
  std::string text = {};  // the whole answer, with the thought and its tags
  size_t thought_bytes = 0;
  FinishReason finish = FinishReason::kStop;
  uint64_t logits_hash = 0;
  int64_t num_tokens = 0;     // tokens of the session when the record was written
  std::string file_tag = {};  // random; the session file saved with this record has the same tag

  // Returns the messages of both sides, without an answer that was cut off.
  [[nodiscard]] std::vector<ChatMessage> AllMessages() const;
  // Returns whether the session has read the last token of its answer.
  [[nodiscard]] bool has_read_answer() const {
    return num_tokens >= answer.begin + static_cast<int64_t>(answer.tokens.size());
  }
};

[[nodiscard]] std::string EncodeRecord(const SessionRecord& record);
// Decodes a record. Errors: Corrupt; Unsupported (another version of the format).
[[nodiscard]] Result<SessionRecord> DecodeRecord(std::string_view bytes);

// Returns the answer as the client received it: calls to which the model gave no id have one.
// `call_seed`: CallIdSeed() of the messages.
[[nodiscard]] ChatMessage AnswerSaid(const ChatPrompt& prompt, const GenerateResult& result,
                                     uint64_t call_seed);

// Returns `record` with its newest turn, finished or given up, moved to `before`. `cut_off`: the
// text of the newest answer if it is incomplete.
[[nodiscard]] SessionRecord WithTurnEnded(SessionRecord record, const ChatMessage& cut_off);

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_SESSION_RECORD_H_
