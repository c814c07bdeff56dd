// Where the texts of system messages go: many templates take one of them, in front, and refuse
// others or leave them out without a word.
#ifndef EBB_MODEL_CHAT_SYSTEM_MESSAGES_H_
#define EBB_MODEL_CHAT_SYSTEM_MESSAGES_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ebb/chat.h"
#include "ebb/status.h"

namespace ebb {

// Which system messages (or a developer's) a template shows.
struct SystemSupport {
  bool first = true;    // one in front of a user's message
  bool several = true;  // two in a row, in front
  bool later = true;    // one between an answer and a user's message
  bool alone = true;    // one without any other message
};

// Renders a conversation; empty if the template refuses it.
using RenderMessages =
    std::function<std::optional<std::string>(const std::vector<ChatMessage>& messages)>;

// Renders four short conversations.
[[nodiscard]] SystemSupport FindSystemSupport(const RenderMessages& render);

// The messages in a form in which the template shows the text of each system message: some are
// joined, others go in front of the user's message that follows. Errors: kUnsupported (there is
// none).
[[nodiscard]] Result<std::vector<ChatMessage>> PlaceSystemMessages(
    const std::vector<ChatMessage>& messages, const SystemSupport& support);
// system or developer
[[nodiscard]] bool IsSystem(const ChatMessage& message);

}  // namespace ebb

#endif  // EBB_MODEL_CHAT_SYSTEM_MESSAGES_H_
