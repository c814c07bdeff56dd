#include "tests/server/agents/agent_texts.h"

#include <string_view>

#include <fmt/format.h>

namespace ebb::server {

using nlohmann::json;

// Returns a word of 3 or 6 letters, which are 1 or 2 tokens for models with random weights.
std::string AgentTexts::Word() {
  std::string word(Draw(3) == 0 ? 3 : 6, 'a');
  for (char& letter : word) letter = static_cast<char>('a' + Draw(26));
  return word;
}

std::string AgentTexts::Prose(size_t num_bytes) {
  std::string text;
  for (int words = 1; text.size() < num_bytes; ++words) {
    text += Word() + (words % 12 == 0 ? "\n" : " ");
  }
  text.resize(num_bytes);
  return text;
}

std::string AgentTexts::File(size_t num_bytes) {
  std::string text;
  for (int line = 1; text.size() < num_bytes; ++line) {
    text += fmt::format("{}\t  {} = {}({});\n", line, Word(), Word(), Word());
  }
  text.resize(num_bytes);
  return text;
}

std::string AgentTexts::Blob(size_t num_bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text(num_bytes, 'A');
  for (char& digit : text) digit = kDigits[Draw(static_cast<int>(kDigits.size()))];
  return text;
}

json AgentTexts::Property(int kind) {
  json property = {{"description", Prose(40 + Draw(160))}};
  switch (kind % 7) {
    case 0:
      property.update({{"type", "integer"}, {"minimum", 0}, {"maximum", 9007199254740991}});
      break;
    case 1:
      property.update({{"type", "boolean"}, {"default", false}});
      break;
    case 2:
      property.update({{"type", "string"}, {"enum", {Word(), Word(), Word()}}});
      break;
    case 3:
      property.update({{"type", "number"}, {"exclusiveMinimum", 0}});
      break;
    case 4:
      property.update(
          {{"type", "array"},
           {"maxItems", 32},
           {"items",
            {{"type", "object"},
             {"properties", {{"file", {{"type", "string"}}}, {"line", {{"type", "integer"}}}}},
             {"required", json::array({"file"})},
             {"additionalProperties", false}}}});
      break;
    case 5:
      property.update({{"type", "string"}, {"maxLength", 4000}, {"pattern", "^[a-z0-9-]+$"}});
      break;
    default:
      property["type"] = "string";
  }
  return property;
}

json AgentTexts::Tool(const std::string& name, size_t num_bytes) {
  json properties = {{"path", {{"type", "string"}, {"description", Prose(60)}}}};
  json tool = {{"name", name}, {"description", ""}};
  const auto size = [&] { return tool.dump().size() + properties.dump().size() + 150; };
  for (int kind = Draw(7); size() < num_bytes / 2; ++kind) properties[Word()] = Property(kind);
  if (size() < num_bytes) tool["description"] = Prose(num_bytes - size());
  tool["schema"] = {{"$schema", "https://json-schema.org/draft/2020-12/schema"},
                    {"type", "object"},
                    {"properties", std::move(properties)},
                    {"required", json::array({"path"})},
                    {"additionalProperties", false}};
  return tool;
}

std::string WithLoneSurrogates(std::string json) {
  constexpr std::string_view kMark = kLoneSurrogate, kEscape = "\\ud83d";
  for (size_t at = json.find(kMark); at != std::string::npos; at = json.find(kMark, at)) {
    json.replace(at, kMark.size(), kEscape);
  }
  return json;
}

}  // namespace ebb::server
