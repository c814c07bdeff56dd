// The base of the converters from other interfaces' requests to chat requests: messages are built
// in the form of /v1/chat/completions, and errors name the fields that the client sent.
#ifndef EBB_SERVER_API_PARTS_CONVERTED_CHAT_H_
#define EBB_SERVER_API_PARTS_CONVERTED_CHAT_H_

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/server/api/api_error.h"
#include "src/server/api/parts/content.h"

namespace ebb::server {

// A field of a chat, and the client's name for it.
struct FieldName {
  std::string_view chat;
  std::string_view shown;
};
// `error` under the client's names; fields below a named one keep the rest of their path.
[[nodiscard]] ApiError UnderNames(ApiError error, std::span<const FieldName> names);

// The messages of a chat in order. Systems' texts at the beginning become one message, since most
// templates know no second one; thoughts, texts and calls of one turn of the assistant too.
class ChatMessages {
 public:
  void AddSystem(const std::string& text);
  void AddUser(std::string text);
  void AddToolAnswer(std::string call_id, std::string text);
  // Add parts of the assistant's message. A thought, or a second text, begins a new message.
  void AddThought(const std::string& text);
  void AddText(std::string text);
  // arguments: as the client sent them; see ArgumentsText().
  void AddCall(std::string call_id, std::string name, Json arguments);
  // The assistant's next part belongs to another turn.
  void EndTurn() { in_turn_ = false; }

  [[nodiscard]] Json Take() { return std::move(messages_); }

 private:
  void Add(Json message);
  [[nodiscard]] Json& Turn();

  Json messages_ = Json::array();
  bool in_turn_ = false;  // the last message is an assistant's that may go on
};

}  // namespace ebb::server

#endif  // EBB_SERVER_API_PARTS_CONVERTED_CHAT_H_
