// Reads the format that a request wants a text to have: a JSON schema, a regular expression, a list
// of texts or a grammar, under the names of OpenAI's API, llama-server and vLLM.
#ifndef EBB_SERVER_API_OPENAI_TEXT_FORMAT_H_
#define EBB_SERVER_API_OPENAI_TEXT_FORMAT_H_

#include <optional>
#include <string>
#include <vector>

#include "src/server/api/base/json_fields.h"

namespace ebb::server {

struct TextFormat {
  enum class Kind { kFree, kJsonObject, kJsonSchema, kGrammar };
  Kind kind = Kind::kFree;
  std::string text = {};   // kJsonSchema and kGrammar only
  std::string field = {};  // the field that asks for the format
};

// FlatFormat is the format in the form of Responses and Messages: {"type": "json_schema", "schema":
// {}}.
struct FlatFormat {
  const Json* json = nullptr;  // null: none
  std::string path = {};       // "text.format"
};

// Reads response_format, json_schema, grammar, guided_json, guided_regex, guided_choice,
// guided_grammar and structured_outputs, and `flat`. Names without effect go to `ignored`. Errors:
// several of these fields; constraints that no grammar can express; unknown members of
// structured_outputs.
[[nodiscard]] TextFormat ReadTextFormat(JsonFields* fields, std::optional<ApiError>* error,
                                        const FlatFormat& flat, std::vector<std::string>* ignored);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_TEXT_FORMAT_H_
