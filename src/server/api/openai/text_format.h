// The format that a request wants a text to have: a JSON schema, a regular expression, a list of
// texts or a grammar, by the names that OpenAI's interface, llama-server and vLLM have for them.
#ifndef EBB_SERVER_API_OPENAI_TEXT_FORMAT_H_
#define EBB_SERVER_API_OPENAI_TEXT_FORMAT_H_

#include <optional>
#include <string>
#include <vector>

#include "src/server/api/json_fields.h"

namespace ebb::server {

struct TextFormat {
  enum class Kind { kFree, kJsonObject, kJsonSchema, kGrammar };
  Kind kind = Kind::kFree;
  std::string text = {};   // of kJsonSchema and kGrammar
  std::string field = {};  // that asks for it
};

// The format of Responses and Messages: {"type": "json_schema", "schema": {}}.
struct FlatFormat {
  const Json* json = nullptr;  // null: none
  std::string path = {};       // "text.format"
};

// Reads response_format, json_schema, grammar, guided_json, guided_regex, guided_choice,
// guided_grammar and structured_outputs, and `flat`. Names without effect go to `ignored`. Errors:
// more than one of them; what their grammar cannot hold to; other members of structured_outputs.
[[nodiscard]] TextFormat ReadTextFormat(JsonFields* fields, std::optional<ApiError>* error,
                                        const FlatFormat& flat, std::vector<std::string>* ignored);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_TEXT_FORMAT_H_
