// Makes the messages of a chat from the parts and items that Messages and Responses send.
#ifndef EBB_SERVER_API_PARTS_CHAT_MESSAGES_H_
#define EBB_SERVER_API_PARTS_CHAT_MESSAGES_H_

#include <string>
#include <vector>

#include "ebb/chat.h"
#include "src/server/api/base/api_error.h"

namespace ebb::server {

// ChatMessages appends to the messages of a chat in order. System texts at the beginning become one
// message, since most templates support only one; so do the thoughts, texts and calls of one turn
// of the assistant.
class ChatMessages {
 public:
  explicit ChatMessages(std::vector<ChatMessage>* messages) : messages_(*messages) {}

  void AddSystem(const std::string& text);
  void AddUser(std::string text);
  void AddToolAnswer(std::string call_id, std::string text);
  // Appends a thought to the assistant's message. If that message has a text or a call already, the
  // thought begins a new message.
  void AddThought(const std::string& text);
  // Sets the text of the assistant's message. If that message has a text or a call already, the
  // text begins a new message.
  void AddText(std::string text);
  // Adds a call. `arguments`: as the client sent them; see ArgumentsText().
  void AddCall(std::string call_id, std::string name, const Json& arguments);
  // Ends the turn: the assistant's next part begins a new message.
  void EndTurn() { in_turn_ = false; }

 private:
  void Add(ChatMessage message);
  [[nodiscard]] ChatMessage& Turn();

  std::vector<ChatMessage>& messages_;
  bool in_turn_ = false;   // the last message is the assistant's and may continue
  bool has_text_ = false;  // this message has its text, which may be empty
};

}  // namespace ebb::server

#endif  // EBB_SERVER_API_PARTS_CHAT_MESSAGES_H_
