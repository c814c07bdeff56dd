#include "src/server/api/openai/chat_fields.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "src/server/api/base/content.h"
#include "src/server/api/openai/chat_tools.h"
#include "src/server/api/openai/text_format.h"

namespace ebb::server {
namespace {

// Sets a variable of the template. `field`: the client's name of it.
void SetArgument(const std::string& name, const Json& value, const std::string& field,
                 CompletionRequest* request) {
  request->chat.template_arguments[name] = Dump(value);
  request->argument_fields[name] = field;
}

class ChatReader {
 public:
  ChatReader(JsonFields* fields, std::optional<ApiError>* error, CompletionRequest* request)
      : fields_(fields), error_(error), request_(request) {}

  void ReadMessages() {
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
  }

  void ReadOptions(const FlatFormat& flat, std::optional<bool> continues) {
    CompleteCallIds(&request_->chat.messages);
    ReadChatTools(fields_, error_, request_);
    if (fields_->ok()) request_->tool_names = RenameTools(&request_->chat);
    ReadFormat(flat);
    ReadThinking();
    ReadBegunAnswer(continues);
  }

 private:
  void ReadMessage(const Json& json, const std::string& path) {
    if (!json.is_object()) return Fail(path, "expected an object", "invalid_type");
    JsonFields fields(json, path, error_);
    ChatMessage message;
    const auto role = fields.Text("role");
    if (!role.has_value()) return Fail(path + ".role", "expected a role", "missing_field");
    // The older API calls a tool's message a function's.
    message.role = role == "function" ? "tool" : *role;
    const Json* content = fields.Any("content");
    const std::string content_path = fields.PathOf("content");
    if (message.role == "tool") {
      // A picture in a tool's result stays in all later requests, so refusing it would end the
      // conversation for good: a placeholder line replaces it.
      message.content = ResultText(content, content_path, &request_->ignored);
      message.tool_call_id = fields.Text("tool_call_id").value_or("");
      // Only tools' names are kept: templates have no place for names of people.
      message.name = fields.Text("name").value_or("");
    } else if (message.role == "assistant") {
      ReadAnswer(ReadContent(content, content_path, error_), &fields, &message);
    } else {
      const size_t num_before = request_->chat.messages.size();
      message.content = UserText(ReadContent(content, content_path, error_));
      const bool had_results = request_->chat.messages.size() > num_before;
      if (had_results && message.content.empty()) return;
    }
    for (const char* name : {"tool_calls", "tool_call_id", "reasoning_content", "reasoning"}) {
      const bool is_tools = std::string_view(name) == "tool_call_id";
      const Json* const value = fields.Any(name);
      if (message.role == (is_tools ? "tool" : "assistant") || value == nullptr) continue;
      if (!value->empty() && *value != "") request_->ignored.push_back(fields.PathOf(name));
    }
    request_->chat.messages.push_back(std::move(message));
  }

  // Returns the text of a user's parts; tool results among them become messages of their own.
  std::string UserText(std::vector<MessagePart> parts) {
    for (const MessagePart& part : parts) {
      if (part.kind == MessagePart::Kind::kResult) {
        request_->chat.messages.push_back(
            {.role = "tool",
             .content = ResultText(part.result, part.path, &request_->ignored),
             .tool_call_id = part.id,
             .name = part.name});
      } else if (part.kind != MessagePart::Kind::kText || part.is_lost) {
        RefusePart(part, error_);
      }
    }
    return JoinedText(parts);
  }

  void AddCall(MessagePart part, ChatMessage* message) {
    if (part.name.empty()) return Fail(part.path + ".name", "expected a function", "missing_field");
    message->tool_calls.push_back({.name = std::move(part.name),
                                   .arguments = ArgumentsText(part.arguments),
                                   .id = std::move(part.id)});
  }

  void ReadAnswer(std::vector<MessagePart> parts, JsonFields* fields, ChatMessage* message) {
    const auto add_thought = [&](const std::string& text) {
      std::string& thought = message->reasoning_content;
      thought += (thought.empty() || text.empty() ? "" : "\n\n") + text;
    };
    LeaveOutLost(&parts, &request_->ignored);
    for (const MessagePart& part : parts) {
      if (part.kind == MessagePart::Kind::kThought) add_thought(part.text);
      if (part.kind == MessagePart::Kind::kCall) AddCall(part, message);
    }
    message->content = JoinedText(parts);
    if (message->content.empty()) message->content = fields->Text("refusal").value_or("");
    for (const char* name :
         {"reasoning_content", "reasoning", "reasoning_details", "thinking_blocks"}) {
      const Json* thought = fields->Any(name);
      if (thought == nullptr || !message->reasoning_content.empty()) continue;
      add_thought(ResultText(thought, fields->PathOf(name), &request_->ignored));
    }
    const std::vector<ToolCall> of_parts = message->tool_calls;
    if (const Json* calls = fields->Array("tool_calls")) {
      for (size_t i = 0; i < calls->size() && !error_->has_value(); ++i) {
        const std::string path = fmt::format("{}[{}]", fields->PathOf("tool_calls"), i);
        if (!(*calls)[i].is_object()) return Fail(path, "expected an object", "invalid_type");
        MessagePart call = ReadCallPart((*calls)[i], path);
        // Some clients send a call both as a part and here.
        if (std::ranges::find(of_parts, call.id, &ToolCall::id) != of_parts.end()) continue;
        AddCall(std::move(call), message);
      }
    }
    if (const Json* call = fields->Object("function_call")) {
      AddCall(ReadCallPart(*call, fields->PathOf("function_call")), message);
    }
  }

  // Moves the last message to `begun` if it is the assistant's and is to be continued: llama-server
  // and Anthropic do so by default, vLLM if continue_final_message says so.
  void ReadBegunAnswer(std::optional<bool> continues) {
    std::vector<ChatMessage>& messages = request_->chat.messages;
    auto asked = fields_->Bool("continue_final_message");
    if (!asked.has_value()) asked = continues;
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

  void ReadFormat(const FlatFormat& flat) {
    TextFormat format = ReadTextFormat(fields_, error_, flat, &request_->ignored);
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

  // Reads a switch of thoughts: true or false, an effort, or an object with the members of
  // Anthropic's `thinking` or OpenRouter's `reasoning`.
  void ReadSwitch(const char* name) {
    const Json* value = fields_->Any(name);
    if (value == nullptr) return;
    if (value->is_string()) return SetEffort(value->get<std::string>(), name, error_, request_);
    if (!value->is_object()) {
      if (const auto thinks = fields_->Bool(name)) SetThinking(*thinks, name, request_);
      return;
    }
    JsonFields fields(*value, name, error_);
    constexpr int64_t kMost = std::numeric_limits<int>::max();
    const auto type = fields.Text("type");
    auto enabled = fields.Bool("enabled");
    if (type == "disabled" || type == "enabled") {
      enabled = type == "enabled";
    } else if (type.has_value() && type != "adaptive" && type != "auto") {
      fields.Fail("type",
                  fmt::format("expected enabled, disabled, adaptive or auto, found \"{}\"", *type));
    }
    if (enabled.has_value()) SetThinking(*enabled, name, request_);
    SetEffort(fields.Text("effort"), fields.PathOf("effort"), error_, request_);
    for (const char* budget : {"budget_tokens", "max_tokens"}) {
      SetThinkingBudget(fields.Integer(budget, -1, kMost), request_);
    }
    for (std::string& unknown : fields.Unknown()) request_->ignored.push_back(std::move(unknown));
  }

  void ReadThinking() {
    SetEffort(fields_->Text("reasoning_effort"), "reasoning_effort", error_, request_);
    for (const char* name : {"thinking", "think", "enable_thinking", "reasoning"}) ReadSwitch(name);
    for (const char* name : {"thinking_token_budget", "thinking_budget_tokens",
                             "reasoning_budget_tokens", "reasoning_budget"}) {
      SetThinkingBudget(fields_->Integer(name, -1, std::numeric_limits<int>::max()), request_);
    }
    const Json* arguments = fields_->Object("chat_template_kwargs");
    if (arguments == nullptr) return;
    JsonFields fields(*arguments, "chat_template_kwargs", error_);
    constexpr std::string_view kOurs[] = {"messages", "tools", "add_generation_prompt", "bos_token",
                                          "eos_token"};
    for (const auto& [name, value] : arguments->items()) {
      const std::string field = fields.PathOf(name);
      if (std::ranges::find(kOurs, name) != std::end(kOurs)) {
        request_->ignored.push_back(field);
      } else if (name == "enable_thinking" || name == "thinking") {
        if (const auto thinks = fields.Bool(name)) SetThinking(*thinks, field, request_);
      } else if (!value.is_null()) {
        SetArgument(name, value, field, request_);
      }
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

void ReadChatMessages(JsonFields* fields, std::optional<ApiError>* error,
                      CompletionRequest* request) {
  ChatReader(fields, error, request).ReadMessages();
}

void ReadChatOptions(JsonFields* fields, std::optional<ApiError>* error, const FlatFormat& flat,
                     std::optional<bool> continues, CompletionRequest* request) {
  ChatReader(fields, error, request).ReadOptions(flat, continues);
}

void SetThinking(bool thinks, const std::string& field, CompletionRequest* request) {
  if (thinks && request->chat.thinking == Thinking::kOff) return;
  if (!thinks) request->chat.thinking = Thinking::kOff;
  // Templates use one of these names.
  for (const char* name : {"enable_thinking", "thinking"}) {
    SetArgument(name, thinks, field, request);
  }
}

void SetEffort(const std::optional<std::string>& effort, const std::string& field,
               std::optional<ApiError>* error, CompletionRequest* request) {
  if (!effort.has_value()) return;
  constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium",
                                           "high", "xhigh",   "max"};
  if (std::ranges::find(kEfforts, *effort) == std::end(kEfforts)) {
    return Fail(field,
                fmt::format("expected none, minimal, low, medium, high, xhigh or max, found \"{}\"",
                            *effort),
                "invalid_value", error);
  }
  if (*effort == "none") return SetThinking(false, field, request);
  SetArgument("reasoning_effort", *effort, field, request);
}

void SetThinkingBudget(const std::optional<int64_t>& budget, CompletionRequest* request) {
  if (!budget.has_value()) return;
  request->generate.thinking_budget = static_cast<int>(*budget);
  // A budget of 0 uses the template's own switch, which is better than closing a thought by force.
  if (*budget == 0) request->chat.thinking = Thinking::kOff;
}

}  // namespace ebb::server
