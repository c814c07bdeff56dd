// A conversation beside its session in the file of --session.
#ifndef EBB_APPS_RUN_CONVERSATION_H_
#define EBB_APPS_RUN_CONVERSATION_H_

#include <memory>

#include "apps/common/options/options.h"
#include "apps/common/setup.h"
#include "ebb/generate.h"
#include "ebb/model.h"
#include "ebb/status.h"

namespace ebb::cli {

// OpenSetup() for a conversation of any length: --memory holds the context with half of it given,
// since turns of the user are never compressed or evicted. A session in the file of --session keeps
// the tiers that it has. The options become those of the tiers.
[[nodiscard]] Result<Setup> OpenSessionSetup(std::shared_ptr<const Model> model,
                                             CliOptions* options);

// The conversation of a setup: the one that was resumed, or a new one. InvalidArgument where it
// does not go with the options: another kind, another system message.
[[nodiscard]] Result<Conversation> OpenConversation(const Setup& setup, const CliOptions& options,
                                                    Conversation::Kind kind);
// Saves both to options.session_file; nothing without one.
[[nodiscard]] Status SaveConversation(const Conversation& conversation, const CliOptions& options,
                                      Setup* setup);

}  // namespace ebb::cli

#endif  // EBB_APPS_RUN_CONVERSATION_H_
