// Reads a prompt from an option, a file or stdin, and makes it a turn of a conversation.
#ifndef EBB_APPS_RUN_PROMPT_H_
#define EBB_APPS_RUN_PROMPT_H_

#include <span>
#include <string>

#include "apps/common/options/options.h"
#include "ebb/generate.h"
#include "ebb/model.h"
#include "ebb/status.h"

namespace ebb::cli {

// Returns the text of -p, else the content of the file of -f, else stdin. Removes one line end (CR
// LF or LF) from the end of the latter two. Errors: a file that cannot be read; an empty prompt. If
// a session is resumed, an empty prompt is allowed, and a terminal is not asked for one.
[[nodiscard]] Result<std::string> ReadPromptText(const CliOptions& options);

// Returns the turn that answers `text` after the tokens `read`, which the session holds already. In
// a conversation of the kind kText the turn continues `text`; an empty `text` continues the last
// answer. Sets whether the model thinks from --thinking-budget. `context` means the same as for
// BeginTurn().
[[nodiscard]] Result<Turn> NextTurn(const Model& model, const CliOptions& options,
                                    const std::string& text, std::span<const Token> read,
                                    Conversation* conversation, int context = 0);
// Returns a conversation that begins with the message of --system, if there is one.
[[nodiscard]] Conversation NewConversation(const CliOptions& options, Conversation::Kind kind);
// Returns the conversation's system message, or null.
[[nodiscard]] const ChatMessage* SystemMessage(const Conversation& conversation);
// Replaces the conversation's system message; an empty text removes it.
void SetSystemMessage(const std::string& text, Conversation* conversation);

// Returns the only turn of `ebb run` without --session: `text` with --system and the chat template,
// or `text` alone with --raw.
[[nodiscard]] Result<Turn> PromptTurn(const Model& model, const CliOptions& options,
                                      const std::string& text);

// Returns the options of an answer to the turn, without callbacks.
[[nodiscard]] GenerateOptions GenerateOptionsFor(const CliOptions& options, const Turn& turn);

}  // namespace ebb::cli

#endif  // EBB_APPS_RUN_PROMPT_H_
