// Reads a prompt from an option, a file or stdin, and makes a turn of a conversation of it.
#ifndef EBB_APPS_RUN_PROMPT_H_
#define EBB_APPS_RUN_PROMPT_H_

#include <span>
#include <string>

#include "apps/common/options/options.h"
#include "ebb/generate.h"
#include "ebb/model.h"
#include "ebb/status.h"

namespace ebb::cli {

// -p, else -f, else stdin; the last two without the line end (CR LF or LF) that they end with.
// Errors: a file that cannot be read, nothing at all. Where a session is resumed
// there may be none: the text is empty then, and a terminal is not asked for one.
[[nodiscard]] Result<std::string> ReadPromptText(const CliOptions& options);

// The turn in which `text` is answered, or, in a text, continued, after the tokens that the
// session has read; an empty one goes on with the last answer. The conversation asks for thoughts
// as the options do. context: as for BeginTurn().
[[nodiscard]] Result<Turn> NextTurn(const Model& model, const CliOptions& options,
                                    const std::string& text, std::span<const Token> read,
                                    Conversation* conversation, int context = 0);
// Returns a conversation that begins as the options say.
[[nodiscard]] Conversation NewConversation(const CliOptions& options, Conversation::Kind kind);

// A prompt as run takes it: with --system and the chat template, or --raw.
[[nodiscard]] Result<Turn> PromptTurn(const Model& model, const CliOptions& options,
                                      const std::string& text);

// Returns the options of an answer to the turn, without callbacks.
[[nodiscard]] GenerateOptions GenerateOptionsFor(const CliOptions& options, const Turn& turn);

}  // namespace ebb::cli

#endif  // EBB_APPS_RUN_PROMPT_H_
