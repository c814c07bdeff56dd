// The chat template of a model, through the common library of llama.cpp. That library promises no
// stable interface: chat.cc is the one file that sees it.
#ifndef EBB_MODEL_CHAT_H_
#define EBB_MODEL_CHAT_H_

#include <span>
#include <string>

#include "ebb/model.h"
#include "ebb/status.h"

struct llama_model;

namespace ebb {

// Renders `messages` with `source`, a Jinja template, or with the model's own when it is empty.
// model: for the texts of its BOS and EOS tokens; may be null when there is a source.
// Errors: what Model::FormatChat() says.
[[nodiscard]] Result<ChatPrompt> RenderChat(const llama_model* model, const std::string& source,
                                            std::span<const ChatMessage> messages,
                                            Model::Thinking thinking);

}  // namespace ebb

#endif  // EBB_MODEL_CHAT_H_
