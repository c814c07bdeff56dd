// Makes other forms of a conversation, for chat templates that refuse it as it is. Agents send the
// same history with each request, so one refusal would end their work.
#ifndef EBB_MODEL_CHAT_MESSAGE_MENDS_H_
#define EBB_MODEL_CHAT_MESSAGE_MENDS_H_

#include <string>
#include <vector>

#include "ebb/chat.h"

namespace ebb {

struct MendedMessages {
  std::vector<ChatMessage> messages;
  std::vector<std::string> changes = {};  // ChatPrompt::mended
};

// Returns the messages with calls and results written as text, for templates that know neither.
[[nodiscard]] MendedMessages WithCallsAsTexts(const std::vector<ChatMessage>& messages);

// Returns whether a prompt contains the texts that templates leave out most easily: those of system
// messages and of results without a call. Checks only a few of them, since long conversations have
// many.
[[nodiscard]] bool ShowsTexts(const std::string& prompt, const std::vector<ChatMessage>& messages);

// Returns the messages as they are, then other forms that contain the same texts, those with fewer
// changes first.
[[nodiscard]] std::vector<MendedMessages> MendedForms(const std::vector<ChatMessage>& messages);

}  // namespace ebb

#endif  // EBB_MODEL_CHAT_MESSAGE_MENDS_H_
