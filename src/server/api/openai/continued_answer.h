// Continues an assistant's message, the last one of a chat (prefill): the prompt ends with its
// text, and the answer is the text that the model adds.
#ifndef EBB_SERVER_API_OPENAI_CONTINUED_ANSWER_H_
#define EBB_SERVER_API_OPENAI_CONTINUED_ANSWER_H_

#include <string>
#include <vector>

#include "ebb/chat.h"
#include "ebb/generate.h"
#include "ebb/model.h"
#include "ebb/status.h"

namespace ebb::server {

struct BegunPiece {
  std::string text;
  Model::Specials specials;  // kParse: tags of thoughts; kAsText: the client's own text
};
// Returns the text to append to `prompt`, which was rendered for the messages before `begun`. If
// the prompt opens a thought and `begun` has only content, an empty thought comes first.
[[nodiscard]] std::vector<BegunPiece> BegunPieces(const ChatMessage& begun,
                                                  const ChatPrompt& prompt);

// Makes the turn in which the assistant continues `begun` after the messages of `chat`. The turn's
// `prompt` determines how the rest of the answer is parsed. `context` and errors: those of
// BeginTurn().
[[nodiscard]] Result<Turn> BeginContinuedTurn(const Model& model, ChatRequest chat,
                                              const ChatMessage& begun, int context);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_CONTINUED_ANSWER_H_
