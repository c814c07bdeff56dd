// The base of the converters from other interfaces' requests to chat requests: messages are built
// in the form of /v1/chat/completions, and errors name the fields that the client sent.
#ifndef EBB_SERVER_API_PARTS_CONVERTED_CHAT_H_
#define EBB_SERVER_API_PARTS_CONVERTED_CHAT_H_

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "src/server/api/api_error.h"

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

// How a content is read.
struct ContentRules {
  std::span<const std::string_view> types;  // of parts that have a text
  // Receives the paths of parts that are no text, each of which is replaced by a line of text.
  // Null: such parts are errors.
  std::vector<std::string>* ignored = nullptr;
};
// The text of a content: a string, or parts. Null gives an empty text. Errors name the part.
[[nodiscard]] std::string ContentText(const Json* content, const std::string& path,
                                      const ContentRules& rules, std::optional<ApiError>* error);
// The text in the place of a part that is no text: the texts of a search result or of a document,
// else "[image: this model reads text only]", whose path goes to `ignored`.
[[nodiscard]] std::string StandInFor(const Json& part, const std::string& path,
                                     std::vector<std::string>* ignored);

// The first one stands.
void Fail(const std::string& path, const std::string& message, std::string code,
          std::optional<ApiError>* error);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_PARTS_CONVERTED_CHAT_H_
