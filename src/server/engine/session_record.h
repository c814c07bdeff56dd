// SessionRecord is the part of a session that a server stores in addition to its rows: the messages
// of both sides, the newest answer so far, and the state from which the next request continues. Its
// functions are pure. docs/user/serve.md explains the rules to authors of clients.
//
// The session's tokens are authoritative: the server never reads a message into the session twice;
// it only compares earlier messages with those that a client sends.
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
  // Holds the client's messages of the newest turn; empty if there is no turn yet.
  std::vector<ChatMessage> asked = {};
  Position turn_begin = 0;       // tokens in the session before the newest turn
  std::vector<Token> lead = {};  // tokens that end the previous answer, before the turn's
  AnswerSoFar answer = {};       // text_bytes is not used
  int thought_tokens = 0;        // how many of the answer's tokens are thought
  bool is_over = false;          // false: the answer was cut off and can continue
  std::string sampler = {};      // Sampler state with which a cut-off answer continues
  // Holds the finished answer as a message. This member and the three below are valid only if
  // is_over.
  ChatMessage said = {};
  std::string text = {};  // text of the answer, with the thought and its tags
  size_t thought_bytes = 0;
  FinishReason finish = FinishReason::kStop;
  uint64_t logits_hash = 0;
  int64_t num_tokens = 0;     // tokens in the session when this was written
  std::string file_tag = {};  // random; equals the tag in the matching session file

  // Returns the messages of both sides, without an answer that was cut off.
  [[nodiscard]] std::vector<ChatMessage> AllMessages() const;
  // Returns whether the session's rows include the last token of its answer.
  [[nodiscard]] bool has_read_answer() const {
    return num_tokens >= answer.begin + static_cast<int64_t>(answer.tokens.size());
  }
};

[[nodiscard]] std::string EncodeRecord(const SessionRecord& record);
// Decodes a record. Errors: Corrupt; Unsupported (another version of the format).
[[nodiscard]] Result<SessionRecord> DecodeRecord(std::string_view bytes);

// Returns the answer as the client received it: tool calls without an id from the model get one.
// `call_seed` is CallIdSeed() of the messages.
[[nodiscard]] ChatMessage AnswerSaid(const ChatPrompt& prompt, const GenerateResult& result,
                                     uint64_t call_seed);

// Returns the record with its newest turn, finished or not, moved to `before`. `cut_off` is the
// message with the text of an incomplete answer.
[[nodiscard]] SessionRecord WithTurnEnded(SessionRecord record, const ChatMessage& cut_off);

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_SESSION_RECORD_H_
