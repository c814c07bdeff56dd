#include "src/server/api/openai/chat_fields.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "src/server/api/openai/text_format.h"
#include "src/server/api/parts/converted_chat.h"

namespace ebb::server {
namespace {

constexpr std::string_view kPartTypes[] = {"text", "input_text", "refusal"};

class ChatReader {
 public:
  ChatReader(JsonFields* fields, std::optional<ApiError>* error, CompletionRequest* request)
      : fields_(fields), error_(error), request_(request) {}

  void Read() {
    const Json* messages = fields_->Array("messages");
    if (messages == nullptr) {
      return Fail("messages", "expected an array of messages", "missing_field");
    }
    if (messages->size() > kMostMessages) {
      return Fail("messages",
                  fmt::format("expected at most {}, found {}", kMostMessages, messages->size()),
                  "request_too_large");
    }
    for (size_t i = 0; i < messages->size() && !error_->has_value(); ++i) {
      ReadMessage((*messages)[i], fmt::format("messages[{}]", i));
    }
    ReadTools();
    if (fields_->ok()) request_->tool_names = RenameTools(&request_->chat);
    ReadFormat();
    ReadThinking();
    ReadBegunAnswer();
  }

 private:
  void ReadCalls(const Json& calls, const std::string& path, ChatMessage* message) {
    for (size_t i = 0; i < calls.size() && !error_->has_value(); ++i) {
      const std::string call_path = fmt::format("{}[{}]", path, i);
      if (!calls[i].is_object()) return Fail(call_path, "expected an object", "invalid_type");
      JsonFields fields(calls[i], call_path, error_);
      const Json* function = fields.Object("function");
      if (function == nullptr) return Fail(call_path, "expected a function", "missing_field");
      JsonFields inner(*function, call_path + ".function", error_);
      ToolCall& call = message->tool_calls.emplace_back();
      call.id = fields.Text("id").value_or("");
      call.name = inner.Text("name").value_or("");
      const Json* arguments = inner.Any("arguments");
      call.arguments = ArgumentsText(arguments == nullptr ? Json() : *arguments);
    }
  }

  void ReadMessage(const Json& json, const std::string& path) {
    if (!json.is_object()) return Fail(path, "expected an object", "invalid_type");
    JsonFields fields(json, path, error_);
    ChatMessage message;
    const auto role = fields.Text("role");
    if (!role.has_value()) return Fail(path + ".role", "expected a role", "missing_field");
    message.role = *role;
    // A picture in a tool's result is in every later request, so that refusing it would end the
    // conversation for good.
    std::vector<std::string>* ignored = message.role == "tool" ? &request_->ignored : nullptr;
    message.content =
        ContentText(fields.Any("content"), path + ".content", {kPartTypes, ignored}, error_);
    message.name = fields.Text("name").value_or("");
    // Names of people have no place in templates.
    if (message.role != "tool") message.name.clear();
    for (const char* name : {"reasoning", "reasoning_content"}) {
      if (auto thought = fields.Text(name); thought.has_value() && message.role == "assistant") {
        message.reasoning_content = *std::move(thought);
      }
    }
    message.tool_call_id = fields.Text("tool_call_id").value_or("");
    if (const Json* calls = fields.Array("tool_calls")) {
      ReadCalls(*calls, path + ".tool_calls", &message);
    }
    request_->chat.messages.push_back(std::move(message));
  }

  // Takes the last message away if it is an assistant's that is to be continued: llama-server and
  // Anthropic do so by default, vLLM where continue_final_message says so.
  void ReadBegunAnswer() {
    std::vector<ChatMessage>& messages = request_->chat.messages;
    const auto asked = fields_->Bool("continue_final_message");
    const auto opens = fields_->Bool("add_generation_prompt");
    if (!fields_->ok()) return;
    request_->chat.opens_answer = opens.value_or(true);
    const auto is_assistants = [&](size_t from_end) {
      return messages.size() >= from_end &&
             messages[messages.size() - from_end].role == "assistant";
    };
    const bool can_go_on = is_assistants(1) && messages.back().tool_calls.empty();
    request_->must_continue = asked == true;
    if (asked == true && (opens == true || !can_go_on)) {
      return Fail("continue_final_message",
                  opens == true ? "not together with add_generation_prompt"
                                : "expected a last message of the assistant's, without calls");
    }
    if (!can_go_on || asked == false || (opens == true && !asked.has_value())) return;
    if (!asked.has_value() && is_assistants(2)) {
      return Fail("messages",
                  "expected at most one message of the assistant's at the end, to go on "
                  "with; continue_final_message false begins another one");
    }
    request_->begun = std::move(messages.back());
    messages.pop_back();
    request_->chat.opens_answer = true;
    if (request_->begun->content.empty() && request_->begun->reasoning_content.empty()) {
      request_->begun.reset();
    }
  }

  void ReadTools() {
    if (const Json* tools = fields_->Array("tools")) {
      for (size_t i = 0; i < tools->size() && !error_->has_value(); ++i) {
        ReadTool((*tools)[i], fmt::format("tools[{}]", i));
      }
    }
    if (const auto parallel = fields_->Bool("parallel_tool_calls")) {
      request_->chat.parallel_tool_calls = *parallel;
    }
    const Json* choice = fields_->Any("tool_choice");
    if (choice == nullptr) return;
    if (choice->is_string()) {
      request_->chat.tool_choice = choice->get<std::string>();
      return;
    }
    if (!choice->is_object()) {
      return Fail("tool_choice", "expected a string or an object", "invalid_type");
    }
    JsonFields fields(*choice, "tool_choice", error_);
    const Json* function = fields.Object("function");
    if (function == nullptr) {
      return Fail("tool_choice.function", "expected the function to call", "missing_field");
    }
    JsonFields inner(*function, "tool_choice.function", error_);
    request_->chat.tool_choice = inner.Text("name").value_or("");
  }

  void ReadTool(const Json& json, const std::string& path) {
    if (!json.is_object()) return Fail(path, "expected an object", "invalid_type");
    JsonFields fields(json, path, error_);
    if (fields.Text("type").value_or("function") != "function") {
      // The tool is no function, or one that a server carries out: the other tools stay usable.
      return request_->ignored.push_back(path);
    }
    const Json* function = fields.Object("function");
    if (function == nullptr) return Fail(path, "expected a function", "missing_field");
    JsonFields inner(*function, path + ".function", error_);
    Tool tool = {.name = inner.Text("name").value_or("")};
    const bool is_there = std::ranges::find(request_->chat.tools, tool.name, &Tool::name) !=
                          request_->chat.tools.end();
    if (tool.name.empty() || is_there) return request_->ignored.push_back(path);
    tool.description = inner.Text("description").value_or("");
    const Json* parameters = inner.Any("parameters");
    if (parameters != nullptr && parameters->is_object()) {
      tool.parameters = parameters->dump();
    } else if (parameters != nullptr) {
      request_->ignored.push_back(inner.PathOf("parameters"));
    }
    request_->chat.tools.push_back(std::move(tool));
    request_->tool_paths.push_back(path);
  }

  void ReadFormat() {
    TextFormat format = ReadTextFormat(fields_, error_);
    ChatRequest& chat = request_->chat;
    request_->format_field = format.field;
    switch (format.kind) {
      case TextFormat::Kind::kFree:
        return;
      case TextFormat::Kind::kJsonObject:
        chat.response_format = ResponseFormat::kJsonObject;
        return;
      case TextFormat::Kind::kJsonSchema:
        chat.response_format = ResponseFormat::kJsonSchema;
        chat.json_schema = std::move(format.text);
        return;
      case TextFormat::Kind::kGrammar:
        chat.grammar = std::move(format.text);
        return;
    }
  }

  void ReadThinking() {
    if (const auto effort = fields_->Text("reasoning_effort")) {
      constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
      if (std::ranges::find(kEfforts, *effort) == std::end(kEfforts)) {
        Fail("reasoning_effort",
             fmt::format("expected none, minimal, low, medium, high or xhigh, found \"{}\"",
                         *effort));
      }
      if (*effort == "none") request_->chat.thinking = Thinking::kOff;
    }
    for (const char* name :
         {"thinking_token_budget", "thinking_budget_tokens", "reasoning_budget_tokens"}) {
      const auto budget = fields_->Integer(name, -1, std::numeric_limits<int>::max());
      if (!budget.has_value()) continue;
      request_->generate.thinking_budget = static_cast<int>(*budget);
      // Templates that can leave the thought out do it better than closing it by force.
      if (*budget == 0) request_->chat.thinking = Thinking::kOff;
    }
    if (const Json* kwargs = fields_->Object("chat_template_kwargs")) {
      JsonFields fields(*kwargs, "chat_template_kwargs", error_);
      if (const auto enabled = fields.Bool("enable_thinking"); enabled == false) {
        request_->chat.thinking = Thinking::kOff;
      }
      for (std::string& name : fields.Unknown()) request_->ignored.push_back(std::move(name));
    }
  }

  void Fail(const std::string& path, const std::string& message,
            std::string code = "invalid_value") {
    fields_->Fail(path, message, std::move(code));
  }

  JsonFields* const fields_;
  std::optional<ApiError>* const error_;
  CompletionRequest* const request_;
};

}  // namespace

void ReadChatFields(JsonFields* fields, std::optional<ApiError>* error,
                    CompletionRequest* request) {
  ChatReader(fields, error, request).Read();
}

}  // namespace ebb::server
