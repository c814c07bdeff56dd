// Moves system messages to places where a template shows them. Many templates accept one system
// message, at the front, and refuse or silently drop any others.
#ifndef EBB_MODEL_CHAT_SYSTEM_MESSAGES_H_
#define EBB_MODEL_CHAT_SYSTEM_MESSAGES_H_

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ebb/chat.h"
#include "ebb/status.h"

namespace ebb {

// SystemSupport lists the system (or developer) messages that a template shows.
struct SystemSupport {
  bool first = true;    // one in front of a user's message
  bool several = true;  // two in a row, in front
  bool later = true;    // one between an answer and a user's message
  bool alone = true;    // one without any other message
};

// RenderMessages renders a conversation; it returns nullopt if the template refuses it.
using RenderMessages =
    std::function<std::optional<std::string>(const std::vector<ChatMessage>& messages)>;

// Finds the support by rendering four short conversations.
[[nodiscard]] SystemSupport FindSystemSupport(const RenderMessages& render);

// Returns the messages in a form in which the template shows the text of each system message: it
// joins some, and puts others in front of the following user's message. Errors: kUnsupported (there
// is no such form).
[[nodiscard]] Result<std::vector<ChatMessage>> PlaceSystemMessages(
    const std::vector<ChatMessage>& messages, const SystemSupport& support);
// Returns whether the message's role is system or developer.
[[nodiscard]] bool IsSystem(const ChatMessage& message);

}  // namespace ebb

#endif  // EBB_MODEL_CHAT_SYSTEM_MESSAGES_H_
