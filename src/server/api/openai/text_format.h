// The format that a request wants a text to have: a JSON schema, a regular expression, a list of
// texts or a grammar, by the names that OpenAI's interface, llama-server and vLLM have for them.
#ifndef EBB_SERVER_API_OPENAI_TEXT_FORMAT_H_
#define EBB_SERVER_API_OPENAI_TEXT_FORMAT_H_

#include <optional>
#include <string>

#include "src/server/api/json_fields.h"

namespace ebb::server {

struct TextFormat {
  enum class Kind { kFree, kJsonObject, kJsonSchema, kGrammar };
  Kind kind = Kind::kFree;
  std::string text = {};   // of kJsonSchema and kGrammar
  std::string field = {};  // that asks for it
};

// Reads response_format, json_schema, grammar, guided_json, guided_regex, guided_choice,
// guided_grammar and structured_outputs. Errors: more than one of them; what their grammar cannot
// hold to.
[[nodiscard]] TextFormat ReadTextFormat(JsonFields* fields, std::optional<ApiError>* error);

}  // namespace ebb::server

#endif  // EBB_SERVER_API_OPENAI_TEXT_FORMAT_H_
