#include "src/server/api/openai/text_format.h"

#include <utility>
#include <vector>

#include <fmt/format.h>

#include "ebb/grammar.h"
#include "src/server/api/base/content.h"

namespace ebb::server {
namespace {

// TextFormatReader reads the format; it keeps the first error.
class TextFormatReader {
 public:
  TextFormatReader(JsonFields* fields, std::optional<ApiError>* error,
                   std::vector<std::string>* ignored)
      : fields_(fields), error_(error), ignored_(ignored) {}

  TextFormat Read(const FlatFormat& flat) {
    // These are the names of llama-server, SGLang and text-generation-webui.
    for (const char* name : {"grammar", "ebnf", "grammar_string"}) {
      if (auto grammar = fields_->Text(name)) TakeGrammar(fields_, name, *std::move(grammar));
    }
    ReadSchema(fields_, "json_schema");
    ReadRegex(fields_, "regex");
    ReadResponseFormat();
    if (flat.json != nullptr) ReadFormat(*flat.json, flat.path, /*is_flat=*/true);
    ReadConstraints(fields_, "guided_");
    if (const Json* outputs = fields_->Object("structured_outputs")) ReadOutputs(*outputs);
    return std::move(format_);
  }

 private:
  void Take(const std::string& path, TextFormat format) {
    format.field = path;
    if (format_.kind != TextFormat::Kind::kFree) {
      return Fail(path, fmt::format("expected this or {}, found both", format_.field),
                  "invalid_value", error_);
    }
    format_ = std::move(format);
  }
  void TakeGrammar(JsonFields* fields, const std::string& name, std::string grammar) {
    if (grammar.empty()) return;
    Take(fields->PathOf(name), {.kind = TextFormat::Kind::kGrammar, .text = std::move(grammar)});
  }
  void TakeGrammar(JsonFields* fields, const std::string& name, const Result<std::string>& made) {
    if (!made.ok()) return fields->Fail(name, made.status().message());
    TakeGrammar(fields, name, *made);
  }
  void TakeSchema(JsonFields* fields, const std::string& name, const Json& schema) {
    const std::string text = schema.dump();
    // Makes the grammar here, so that an error names the field.
    const Result<std::string> grammar = GrammarOfSchema(text);
    if (!grammar.ok()) return fields->Fail(name, grammar.status().message());
    Take(fields->PathOf(name), {.kind = TextFormat::Kind::kJsonSchema, .text = text});
  }

  void ReadResponseFormat() {
    const Json* format = fields_->Object("response_format");
    if (format != nullptr) ReadFormat(*format, "response_format", /*is_flat=*/false);
  }

  void ReadFormat(const Json& format, const std::string& path, bool is_flat) {
    JsonFields fields(format, path, error_);
    const std::string type = fields.Text("type").value_or("");
    if (type == "text") return;
    if (type == "json_object") {
      // Clients of llama-server also put a schema here.
      const Json* schema = is_flat ? nullptr : fields.Object("schema");
      if (schema != nullptr) return TakeSchema(&fields, "schema", *schema);
      return Take(path, {.kind = TextFormat::Kind::kJsonObject});
    }
    if (type != "json_schema") {
      return fields.Fail(
          "type", fmt::format("expected text, json_object or json_schema, found \"{}\"", type));
    }
    const Json* outer = is_flat ? &format : fields.Object("json_schema");
    if (outer == nullptr) return fields.Fail("json_schema", "expected an object", "missing_field");
    JsonFields inner(*outer, is_flat ? path : path + ".json_schema", error_);
    const Json* schema = inner.Object("schema");
    if (schema == nullptr) return inner.Fail("schema", "expected a JSON schema", "missing_field");
    TakeSchema(&inner, "schema", *schema);
  }

  // Reads structured_outputs. Refuses unknown members, since each could be a constraint.
  void ReadOutputs(const Json& outputs) {
    JsonFields fields(outputs, "structured_outputs", error_);
    ReadConstraints(&fields, "");
    if (fields.Bool("json_object") == true) {
      Take(fields.PathOf("json_object"), {.kind = TextFormat::Kind::kJsonObject});
    }
    for (const char* name : {"disable_fallback", "disable_any_whitespace",
                             "disable_additional_properties", "whitespace_pattern"}) {
      if (fields.Any(name) != nullptr) ignored_->push_back(fields.PathOf(name));
    }
    for (const std::string& path : fields.Unknown()) {
      Fail(path, "not supported", "unsupported", error_);
    }
  }

  // Reads a schema, as an object or as text.
  void ReadSchema(JsonFields* fields, const std::string& name) {
    const Json* schema = fields->Any(name);
    if (schema == nullptr || *schema == "") return;
    const ApiResult<Json> parsed =
        schema->is_string() ? ParseObject(schema->get_ref<const std::string&>()) : *schema;
    if (!parsed.ok() || !parsed->is_object()) {
      return fields->Fail(name, "expected a JSON schema", "invalid_type");
    }
    TakeSchema(fields, name, *parsed);
  }

  void ReadRegex(JsonFields* fields, const std::string& name) {
    const auto pattern = fields->Text(name);
    if (pattern.has_value() && !pattern->empty()) {
      TakeGrammar(fields, name, GrammarOfRegex(*pattern));
    }
  }

  // Reads vLLM's constraints, under their older names and within structured_outputs.
  void ReadConstraints(JsonFields* fields, const std::string& prefix) {
    const std::string choice = prefix + "choice";
    ReadSchema(fields, prefix + "json");
    ReadRegex(fields, prefix + "regex");
    if (const Json* list = fields->Array(choice); list != nullptr && !list->empty()) {
      std::vector<std::string> texts;
      for (const Json& text : *list) {
        if (!text.is_string()) {
          return fields->Fail(choice, "expected an array of strings", "invalid_type");
        }
        texts.push_back(text.get<std::string>());
      }
      TakeGrammar(fields, choice, GrammarOfChoice(texts));
    }
    if (auto grammar = fields->Text(prefix + "grammar")) {
      TakeGrammar(fields, prefix + "grammar", *std::move(grammar));
    }
  }

  JsonFields* const fields_;
  std::optional<ApiError>* const error_;
  std::vector<std::string>* const ignored_;
  TextFormat format_;
};

}  // namespace

TextFormat ReadTextFormat(JsonFields* fields, std::optional<ApiError>* error,
                          const FlatFormat& flat, std::vector<std::string>* ignored) {
  return TextFormatReader(fields, error, ignored).Read(flat);
}

}  // namespace ebb::server
