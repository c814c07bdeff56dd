// A conversation, and how it rests beside its session in the file of --session.
#ifndef EBB_CLI_CONVERSATION_H_
#define EBB_CLI_CONVERSATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/generate.h"
#include "ebb/model.h"
#include "ebb/status.h"
#include "src/cli/options.h"
#include "src/cli/setup.h"
#include "src/cli/summary.h"
#include "src/cli/turn.h"

namespace ebb::cli {

struct Conversation {
  enum class Kind : uint8_t { kChat = 0, kRaw = 1 };  // kRaw: one text, without messages
  Kind kind = Kind::kChat;
  std::vector<ChatMessage> messages;  // an answer too that is not over
  uint64_t num_turns = 0;             // that were begun; seeds of sampling count up with them
  OpenAnswer last;                    // the last answer
  bool last_is_over = false;          // it ended by itself
};

// OpenSetup() for a conversation of any length: --memory holds the context with half of it given,
// since turns of the user are never compressed or evicted. A session in the file of --session keeps
// the tiers that it has. The options become those of the tiers.
[[nodiscard]] Result<Setup> OpenSessionSetup(std::shared_ptr<const Model> model,
                                             CliOptions* options);

[[nodiscard]] std::string Encode(const Conversation& conversation);
// Corrupt when it is not what Encode() wrote.
[[nodiscard]] Result<Conversation> DecodeConversation(std::string_view bytes);

// The conversation of a setup: the one that was resumed, or a new one. InvalidArgument where it
// does not go with the options: another kind, another system message.
[[nodiscard]] Result<Conversation> OpenConversation(const Setup& setup, const CliOptions& options,
                                                    Conversation::Kind kind);
// Saves both to options.session_file; nothing without one.
[[nodiscard]] Status SaveConversation(const Conversation& conversation, const CliOptions& options,
                                      Setup* setup);

// The turn that a text begins: its message joins the conversation. An empty text goes on with the
// last answer, which leaves the conversation.
[[nodiscard]] Result<TurnInput> BeginTurn(const Setup& setup, const CliOptions& options,
                                          const std::string& text, Conversation* conversation);
// Of the turn that was begun last.
[[nodiscard]] uint64_t SeedOfTurn(const CliOptions& options, const Conversation& conversation);
// The answer joins the conversation; where there was none, the question leaves it.
void EndTurn(const RunFigures& figures, const TurnInput& input, Conversation* conversation);

}  // namespace ebb::cli

#endif  // EBB_CLI_CONVERSATION_H_
