// Reads the contents of messages. Clients send back parts from any model or server, so a part has
// many forms: those of OpenAI's three APIs, Anthropic's, LangChain's, MCP's and those of other
// servers.
#ifndef EBB_SERVER_API_BASE_CONTENT_H_
#define EBB_SERVER_API_BASE_CONTENT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/server/api/base/api_error.h"

namespace ebb::server {

struct MessagePart {
  enum class Kind : uint8_t { kText, kThought, kCall, kResult };
  Kind kind = Kind::kText;
  std::string path = {};  // "messages[0].content[1]"
  // Holds the text of kText and kThought; if is_lost, a placeholder line for a part that is no
  // text.
  std::string text = {};
  std::string type = {};         // the client's name of the type
  bool is_lost = false;          // the model cannot read all of the part
  bool is_line = false;          // the text needs lines of its own
  std::string id = {};           // kCall and kResult: the call's id
  std::string name = {};         // kCall and kResult: the tool's name
  Json arguments = {};           // kCall: as the client sent them
  const Json* result = nullptr;  // kResult: its content; null: none
};

// Returns the parts of a content, which is a text, a part, or a list of these; lists may be nested.
// Errors: a number, true or false; a part of type text without a text.
[[nodiscard]] std::vector<MessagePart> ReadContent(const Json* content, const std::string& path,
                                                   std::optional<ApiError>* error);
// Joins the texts of kText; ignores other parts.
[[nodiscard]] std::string JoinedText(const std::vector<MessagePart>& parts);

// Removes parts that an assistant's message has no place for: parts that are no text, and results
// of tools that another server carried out. Their paths go to `ignored`.
void LeaveOutLost(std::vector<MessagePart>* parts, std::vector<std::string>* ignored);

// Returns the text of a system's or user's content. Errors: those of ReadContent(), and parts that
// are no text.
[[nodiscard]] std::string ContentText(const Json* content, const std::string& path,
                                      std::optional<ApiError>* error);
// Sets the error of ContentText() for a part.
void RefusePart(const MessagePart& part, std::optional<ApiError>* error);
// Returns the text of a tool's result, or of a thought, from any JSON type. Placeholder lines such
// as "[image: this model reads text only]" replace parts that are no text, and the paths of these
// parts go to `ignored`.
[[nodiscard]] std::string ResultText(const Json* content, const std::string& path,
                                     std::vector<std::string>* ignored);

// Reads a call in the forms of MessagePart, or as an item of an assistant's `tool_calls`.
[[nodiscard]] MessagePart ReadCallPart(const Json& call, const std::string& path);

// Records an error, unless there is one already.
void Fail(const std::string& path, const std::string& message, std::string code,
          std::optional<ApiError>* error);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_BASE_CONTENT_H_
