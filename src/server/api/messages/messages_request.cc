#include "src/server/api/messages/messages_request.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "src/server/api/json_fields.h"
#include "src/server/api/parts/converted_chat.h"

namespace ebb::server {
namespace {

constexpr std::string_view kMessagesTextTypes[] = {"text"};

// Members that have another form in a chat. All others pass.
constexpr std::string_view kMessagesConverted[] = {"system",        "messages",       "tools",
                                                   "tool_choice",   "stop_sequences", "thinking",
                                                   "output_config", "output_format"};
// Members of a chat that have another name here.
constexpr std::string_view kOfChatsNotOfMessages[] = {"stop", "response_format", "json_schema",
                                                      "max_completion_tokens", "logprobs"};

// The first line of Claude Code's system text. It differs from session to session, so that prefix
// caching would share nothing behind it, and it is meant for a billing service, not for the model.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";

void DropBillingHeader(Json* text, std::vector<std::string>* ignored) {
  if (!text->is_string()) return;
  const auto& whole = text->get_ref<const std::string&>();
  if (!whole.starts_with(kBillingHeader)) return;
  const size_t end = std::min(whole.find('\n'), whole.size());
  ignored->emplace_back("system: x-anthropic-billing-header");
  *text = whole.substr(std::min(whole.find_first_not_of("\r\n", end), whole.size()));
}

// A system text, or blocks of one, without that line.
Json WithoutBillingHeader(Json system, std::vector<std::string>* ignored) {
  if (!system.is_array()) {
    DropBillingHeader(&system, ignored);
    return system;
  }
  for (Json& block : system) {
    if (block.is_object() && block.contains("text")) DropBillingHeader(&block["text"], ignored);
  }
  return system;
}

class MessagesReader {
 public:
  MessagesReader(const Json& body, MessagesUse use)
      : body_(body), use_(use), fields_(body, "", &error_) {}

  ApiResult<MessagesRequest> Read() {
    for (const auto& [name, value] : body_.items()) {
      if (std::ranges::find(kMessagesConverted, name) == std::end(kMessagesConverted))
        chat_[name] = value;
    }
    RefuseWhatIsNotThere();
    if (use_ == MessagesUse::kAnswer && fields_.Any("max_tokens") == nullptr) {
      fields_.Fail("max_tokens", "expected the most tokens of the answer", "missing_field");
    }
    if (const Json* system = fields_.Any("system")) {
      const Json read = WithoutBillingHeader(*system, &request_.ignored);
      const std::string text = ContentText(&read, "system", {kMessagesTextTypes}, &error_);
      if (!text.empty()) messages_.AddSystem(text);
    }
    ReadMessages();
    ReadTools();
    ReadToolChoice();
    ReadStops();
    ReadThinking();
    ReadOutput();
    if (error_.has_value()) return *std::move(error_);
    Json messages = messages_.Take();
    // An answer that was begun is gone on with, also behind other messages of the assistant's.
    const bool is_begun = !messages.empty() && messages.back()["role"] == "assistant" &&
                          !messages.back().contains("tool_calls");
    if (is_begun && !chat_.contains("continue_final_message")) {
      chat_["continue_final_message"] = true;
    }
    chat_["messages"] = std::move(messages);
    request_.chat = std::move(chat_);
    return std::move(request_);
  }

 private:
  void RefuseWhatIsNotThere() {
    for (const std::string_view name : kOfChatsNotOfMessages) {
      if (fields_.Any(std::string(name)) != nullptr) {
        fields_.Fail(std::string(name), "not a field of /v1/messages", "unsupported");
      }
    }
    if (const Json* n = fields_.Any("n"); n != nullptr && *n != 1) {
      fields_.Fail("n", "a message has one answer", "unsupported");
    }
    for (const char* name : {"mcp_servers", "container"}) {
      const Json* value = fields_.Any(name);
      if (value == nullptr || value->empty()) continue;
      fields_.Fail(name, "not supported", "unsupported");
    }
  }

  void ReadMessages() {
    const Json* messages = fields_.Array("messages");
    if (messages == nullptr) {
      return fields_.Fail("messages", "expected an array of messages", "missing_field");
    }
    if (messages->size() > kMostMessages) {
      return fields_.Fail(
          "messages", fmt::format("expected at most {}, found {}", kMostMessages, messages->size()),
          "request_too_large");
    }
    for (size_t i = 0; i < messages->size() && !error_.has_value(); ++i) {
      ReadMessage((*messages)[i], fmt::format("messages[{}]", i));
    }
  }

  void ReadMessage(const Json& json, const std::string& path) {
    if (!json.is_object()) return Fail(path, "expected an object", "invalid_type", &error_);
    JsonFields fields(json, path, &error_);
    const std::string role = fields.Text("role").value_or("");
    const Json* content = fields.Any("content");
    const std::string content_path = path + ".content";
    if (role == "system") {
      return messages_.AddSystem(ContentText(content, content_path, {kMessagesTextTypes}, &error_));
    }
    if (role != "user" && role != "assistant") {
      return fields.Fail("role", fmt::format("expected user or assistant, found \"{}\"", role));
    }
    if (content == nullptr) {
      return fields.Fail("content", "expected a text or an array of blocks", "missing_field");
    }
    const bool is_user = role == "user";
    messages_.EndTurn();
    if (content->is_string()) {
      return is_user ? messages_.AddUser(content->get<std::string>())
                     : messages_.AddText(content->get<std::string>());
    }
    if (!content->is_array()) {
      return fields.Fail("content", "expected a string or an array", "invalid_type");
    }
    text_.reset();
    has_tool_result_ = is_user && std::ranges::any_of(*content, IsToolResult);
    for (size_t i = 0; i < content->size() && !error_.has_value(); ++i) {
      const std::string block_path = fmt::format("{}[{}]", content_path, i);
      const Json& block = (*content)[i];
      if (!block.is_object()) {
        return Fail(block_path, "expected an object", "invalid_type", &error_);
      }
      is_user ? ReadUserBlock(block, block_path) : ReadAssistantBlock(block, block_path);
    }
    EndText(is_user);
  }

  // Texts side by side are one.
  void AddText(std::string text) { text_ = text_.value_or("") + std::move(text); }
  void EndText(bool is_user) {
    const auto text = std::exchange(text_, std::nullopt);
    if (!text.has_value()) return;
    is_user ? messages_.AddUser(*text) : messages_.AddText(*text);
  }

  void ReadUserBlock(const Json& block, const std::string& path) {
    JsonFields fields(block, path, &error_);
    const std::string type = fields.Text("type").value_or("");
    if (type == "text") return AddText(Needed("text", &fields));
    if (type != "tool_result") return ReadOtherUserBlock(block, path, &fields);
    EndText(/*is_user=*/true);
    std::string id = Needed("tool_use_id", &fields);
    messages_.AddToolAnswer(std::move(id),
                            ContentText(fields.Any("content"), path + ".content",
                                        {kMessagesTextTypes, &request_.ignored}, &error_));
  }

  static bool IsToolResult(const Json& block) {
    return block.is_object() && block.contains("type") && block["type"] == "tool_result";
  }

  // Replaces pictures and documents by text in a message with tool results: clients put parts of a
  // result behind it, and send them again in every later request. Refuses a user's own, unless the
  // document is a text.
  void ReadOtherUserBlock(const Json& block, const std::string& path, JsonFields* fields) {
    std::vector<std::string> lost;
    std::string text = StandInFor(block, path, &lost);
    if (lost.empty() || has_tool_result_) {
      request_.ignored.insert(request_.ignored.end(), lost.begin(), lost.end());
      return AddText(std::move(text) + "\n");
    }
    fields->Fail(
        "type",
        fmt::format("expected text or tool_result, found \"{}\": this model reads text only",
                    fields->Text("type").value_or("")),
        "unsupported");
  }

  void ReadAssistantBlock(const Json& block, const std::string& path) {
    JsonFields fields(block, path, &error_);
    const std::string type = fields.Text("type").value_or("");
    if (type == "text") return AddText(Needed("text", &fields));
    EndText(/*is_user=*/false);
    if (type == "thinking") {
      if (const std::string text = Needed("thinking", &fields); !text.empty()) {
        messages_.AddThought(text);
      }
    } else if (type == "tool_use") {
      std::string id = Needed("id", &fields);
      std::string name = Needed("name", &fields);
      const Json* input = fields.Any("input");
      Json arguments;
      if (input != nullptr) arguments = input->is_string() ? *input : Json(Dump(*input));
      messages_.AddCall(std::move(id), std::move(name), std::move(arguments));
    } else if (type != "redacted_thinking") {
      // A tool that another server carried out has no place in a chat.
      request_.ignored.push_back(path);
    }
  }

  void ReadTools() {
    const Json* tools = fields_.Array("tools");
    if (tools == nullptr) return;
    chat_["tools"] = Json::array();
    for (size_t i = 0; i < tools->size() && !error_.has_value(); ++i) {
      const std::string path = fmt::format("tools[{}]", i);
      const Json& tool = (*tools)[i];
      if (!tool.is_object()) return Fail(path, "expected an object", "invalid_type", &error_);
      JsonFields fields(tool, path, &error_);
      if (fields.Text("type").value_or("custom") != "custom") {
        // A tool of Anthropic's, without a schema: ReadRequest() leaves it out, and names it.
        chat_["tools"].push_back(tool);
        continue;
      }
      Json function = {{"name", Needed("name", &fields)}};
      if (auto text = fields.Text("description")) function["description"] = *std::move(text);
      if (const Json* schema = fields.Any("input_schema")) function["parameters"] = *schema;
      chat_["tools"].push_back({{"type", "function"}, {"function", std::move(function)}});
    }
  }

  void ReadToolChoice() {
    const Json* choice = fields_.Object("tool_choice");
    if (choice == nullptr) return;
    JsonFields fields(*choice, "tool_choice", &error_);
    const std::string type = fields.Text("type").value_or("");
    if (type == "auto" || type == "none") {
      chat_["tool_choice"] = type;
    } else if (type == "any") {
      chat_["tool_choice"] = "required";
    } else if (type == "tool") {
      chat_["tool_choice"] = {{"type", "function"},
                              {"function", {{"name", Needed("name", &fields)}}}};
    } else {
      fields.Fail("type", fmt::format("expected auto, any, tool or none, found \"{}\"", type));
    }
    if (fields.Bool("disable_parallel_tool_use") == true) chat_["parallel_tool_calls"] = false;
  }

  void ReadStops() {
    const Json* stops = fields_.Array("stop_sequences");
    if (stops == nullptr) return;
    for (const Json& stop : *stops) {
      if (!stop.is_string()) {
        return fields_.Fail("stop_sequences", "expected strings", "invalid_type");
      }
      request_.stops.push_back(stop.get<std::string>());
    }
    chat_["stop"] = *stops;
  }

  void ReadThinking() {
    const Json* thinking = fields_.Object("thinking");
    if (thinking == nullptr) return;
    JsonFields fields(*thinking, "thinking", &error_);
    const std::string type = fields.Text("type").value_or("");
    if (type == "enabled") {
      const auto budget = fields.Integer("budget_tokens", 1, std::numeric_limits<int>::max());
      if (!budget.has_value()) {
        return fields.Fail("budget_tokens", "expected the most tokens of the thought",
                           "missing_field");
      }
      chat_["thinking_token_budget"] = *budget;
    } else if (type == "disabled") {
      chat_["reasoning_effort"] = "none";
    } else if (type != "adaptive") {
      fields.Fail("type",
                  fmt::format("expected enabled, disabled or adaptive, found \"{}\"", type));
    }
  }

  void ReadOutput() {
    if (const Json* config = fields_.Object("output_config")) {
      JsonFields fields(*config, "output_config", &error_);
      const auto effort = fields.Text("effort");
      // A request that switches thoughts off has no effort to choose.
      if (effort.has_value() && !chat_.contains("reasoning_effort")) {
        chat_["reasoning_effort"] = *effort == "max" ? "xhigh" : *effort;
      }
      if (const Json* format = fields.Object("format")) ReadFormat(*format, "output_config.format");
    }
    if (const Json* format = fields_.Object("output_format")) ReadFormat(*format, "output_format");
  }

  void ReadFormat(const Json& format, const std::string& path) {
    JsonFields fields(format, path, &error_);
    const std::string type = fields.Text("type").value_or("");
    const Json* schema = fields.Object("schema");
    if (type != "json_schema" || schema == nullptr) {
      return Fail(path, "expected a format of type json_schema with a schema", "invalid_value",
                  &error_);
    }
    chat_["response_format"] = {{"type", "json_schema"}, {"json_schema", {{"schema", *schema}}}};
  }

  // An empty text is one.
  static std::string Needed(const char* name, JsonFields* fields) {
    auto text = fields->Text(name);
    if (!text.has_value()) fields->Fail(name, "expected a text", "missing_field");
    return std::move(text).value_or("");
  }

  const Json& body_;
  const MessagesUse use_;
  std::optional<ApiError> error_;
  JsonFields fields_;
  ChatMessages messages_;
  std::optional<std::string> text_;  // of blocks that may go on
  bool has_tool_result_ = false;     // the message that is read
  Json chat_ = Json::object();
  MessagesRequest request_;
};

}  // namespace

ApiResult<MessagesRequest> ReadMessagesRequest(const Json& body, MessagesUse use) {
  return MessagesReader(body, use).Read();
}

ApiError InMessages(ApiError error) {
  static constexpr FieldName kNames[] = {
      {"stop", "stop_sequences"},
      {"thinking_token_budget", "thinking.budget_tokens"},
      {"reasoning_effort", "output_config.effort"},
      {"response_format.json_schema", "output_config.format"},
      {"tool_choice.function.name", "tool_choice.name"},
  };
  return UnderNames(std::move(error), kNames);
}

}  // namespace ebb::server
