// Opens, resumes and saves the conversation that the file of --session holds together with the
// session.
#ifndef EBB_APPS_RUN_CONVERSATION_H_
#define EBB_APPS_RUN_CONVERSATION_H_

#include <memory>

#include "apps/common/options/options.h"
#include "apps/common/setup.h"
#include "ebb/generate.h"
#include "ebb/model.h"
#include "ebb/status.h"

namespace ebb::cli {

// Opens a session for a conversation of any length. Takes the lock of the --session file first.
// With --memory, chooses tiers that hold the whole context if half of it are user turns, which are
// never compressed or evicted; a session in the file keeps the tiers that it was saved with. Stores
// the tiers in *options. Errors: those of FitIntoMemory() and OpenSetup(); a file that another
// process holds or that could not be saved.
[[nodiscard]] Result<Setup> OpenSessionSetup(std::shared_ptr<const Model> model,
                                             CliOptions* options);

// Returns the conversation of the resumed session, or a new one. Errors: InvalidArgument if the
// resumed conversation contradicts the options: a text instead of a chat (or the reverse), or
// another system message.
[[nodiscard]] Result<Conversation> OpenConversation(const Setup& setup, const CliOptions& options,
                                                    Conversation::Kind kind);
// Saves the session and the conversation to options.session_file; does nothing without that option.
[[nodiscard]] Status SaveConversation(const Conversation& conversation, const CliOptions& options,
                                      Setup* setup);

}  // namespace ebb::cli

#endif  // EBB_APPS_RUN_CONVERSATION_H_
