#include "src/server/api/messages/messages_request.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "src/server/api/base/content.h"
#include "src/server/api/openai/chat_fields.h"
#include "src/server/api/openai/request_reader.h"
#include "src/server/api/parts/chat_messages.h"

namespace ebb::server {
namespace {

// kOfChatsNotOfMessages lists members of a chat that have another name here.
constexpr std::string_view kOfChatsNotOfMessages[] = {"stop", "response_format", "json_schema",
                                                      "max_completion_tokens", "logprobs"};

// kBillingHeader begins the first line of Claude Code's system text. The line is removed: it
// differs from session to session, so that prefix caching would share nothing after it, and it is
// meant for a billing service, not for the model.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header:";

void DropBillingHeader(Json* text, std::vector<std::string>* ignored) {
  if (!text->is_string()) return;
  const auto& whole = text->get_ref<const std::string&>();
  if (!whole.starts_with(kBillingHeader)) return;
  const size_t end = std::min(whole.find('\n'), whole.size());
  ignored->emplace_back("system: x-anthropic-billing-header");
  *text = whole.substr(std::min(whole.find_first_not_of("\r\n", end), whole.size()));
}

// Returns a system text, or its blocks, without the billing line.
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

class MessagesReader final : public RequestReader {
 public:
  MessagesReader(const Json& body, const RequestDefaults& defaults)
      : RequestReader(Endpoint::kChat, body, defaults), messages_(&request_.chat.messages) {}

  ApiResult<CompletionRequest> Read(ReadScope scope) {
    RefuseWhatIsNotThere();
    if (scope == ReadScope::kAnswer && fields_.Any("max_tokens") == nullptr) {
      Fail("max_tokens", "expected the most tokens of the answer", "missing_field");
    }
    if (const Json* system = own_.Any(Own("system"))) {
      const Json read = WithoutBillingHeader(*system, &request_.ignored);
      const std::string text = ContentText(&read, "system", &error_);
      if (!text.empty()) messages_.AddSystem(text);
    }
    ReadMessageList();
    ReadStopSequences();
    ReadThinking();
    ReadOutput();
    if (scope == ReadScope::kAnswer) ReadModel();
    // A message of the assistant at the end is continued even if others of the assistant precede
    // it.
    const std::vector<ChatMessage>& messages = request_.chat.messages;
    const bool is_begun = !messages.empty() && messages.back().role == "assistant" &&
                          messages.back().tool_calls.empty();
    ReadChatOptions(&fields_, &error_, format_, is_begun ? std::optional(true) : std::nullopt,
                    &request_);
    ReadToolChoice();
    if (scope == ReadScope::kPrompt) return Take(scope);
    ReadChatOutput();
    ReadShared();
    return Take();
  }

 private:
  void RefuseWhatIsNotThere() {
    for (const std::string_view name : kOfChatsNotOfMessages) {
      if (own_.Any(std::string(name)) != nullptr) {
        Fail(std::string(name), "not a field of /v1/messages", "unsupported");
      }
    }
    if (const Json* n = own_.Any("n"); n != nullptr && *n != 1) {
      Fail("n", "a message has one answer", "unsupported");
    }
    for (const char* name : {"mcp_servers", "container"}) {
      const Json* value = own_.Any(name);
      if (value == nullptr || value->empty()) continue;
      Fail(name, "not supported", "unsupported");
    }
  }

  void ReadMessageList() {
    const Json* messages = own_.Array(Own("messages"));
    if (messages == nullptr) {
      return Fail("messages", "expected an array of messages", "missing_field");
    }
    if (messages->size() > kMostMessages) {
      return Fail("messages",
                  fmt::format("expected at most {}, found {}", kMostMessages, messages->size()),
                  "request_too_large");
    }
    for (size_t i = 0; i < messages->size() && !error_.has_value(); ++i) {
      ReadMessage((*messages)[i], fmt::format("messages[{}]", i));
    }
  }

  void ReadMessage(const Json& json, const std::string& path) {
    if (!json.is_object()) return Fail(path, "expected an object", "invalid_type");
    JsonFields fields(json, path, &error_);
    const std::string role = fields.Text("role").value_or("");
    const Json* content = fields.Any("content");
    const std::string content_path = path + ".content";
    if (role == "system" || role == "developer") {
      return messages_.AddSystem(ContentText(content, content_path, &error_));
    }
    if (role != "user" && role != "assistant") {
      return fields.Fail("role", fmt::format("expected user or assistant, found \"{}\"", role));
    }
    if (content == nullptr) {
      return fields.Fail("content", "expected a text or an array of blocks", "missing_field");
    }
    messages_.EndTurn();
    const std::vector<MessagePart> parts = ReadContent(content, content_path, &error_);
    if (error_.has_value()) return;
    role == "user" ? AddUserParts(parts) : AddAnswerParts(parts);
  }

  // Adds a user's parts; adjacent texts become one message. Clients put pictures and documents of a
  // tool's result after it, and send them again in every later request, so a placeholder line
  // replaces them; a user's own are errors.
  void AddUserParts(const std::vector<MessagePart>& parts) {
    const bool has_result = std::ranges::any_of(
        parts, [](const MessagePart& part) { return part.kind == MessagePart::Kind::kResult; });
    std::vector<MessagePart> texts;
    const auto end_text = [&] {
      if (!texts.empty()) messages_.AddUser(JoinedText(std::exchange(texts, {})));
    };
    for (const MessagePart& part : parts) {
      if (part.kind == MessagePart::Kind::kText && (has_result || !part.is_lost)) {
        if (part.is_lost) request_.ignored.push_back(part.path);
        texts.push_back(part);
      } else if (part.kind == MessagePart::Kind::kResult) {
        end_text();
        messages_.AddToolAnswer(part.id,
                                ResultText(part.result, part.path + ".content", &request_.ignored));
      } else {
        RefusePart(part, &error_);
      }
    }
    end_text();
  }

  void AddAnswerParts(std::vector<MessagePart> parts) {
    LeaveOutLost(&parts, &request_.ignored);
    std::vector<MessagePart> texts;
    const auto end_text = [&] {
      if (!texts.empty()) messages_.AddText(JoinedText(std::exchange(texts, {})));
    };
    for (const MessagePart& part : parts) {
      if (part.kind == MessagePart::Kind::kText) {
        texts.push_back(part);
        continue;
      }
      end_text();
      if (part.kind == MessagePart::Kind::kThought && !part.text.empty()) {
        messages_.AddThought(part.text);
      } else if (part.kind == MessagePart::Kind::kCall) {
        if (part.name.empty()) {
          Fail(part.path + ".name", "expected a text", "missing_field");
        }
        messages_.AddCall(part.id, part.name, part.arguments);
      }
    }
    end_text();
  }

  void ReadToolChoice() {
    const Json* choice = own_.Any("tool_choice");
    if (choice == nullptr || !choice->is_object()) return;
    JsonFields fields(*choice, "tool_choice", &error_);
    if (fields.Bool("disable_parallel_tool_use") == true) request_.chat.parallel_tool_calls = false;
  }

  // Reads stop sequences, which must be an array, unlike a chat's. ReadShared() reads them again as
  // stops.
  void ReadStopSequences() {
    const Json* stops = own_.Array("stop_sequences");
    if (stops == nullptr) return;
    for (const Json& stop : *stops) {
      if (!stop.is_string()) return Fail("stop_sequences", "expected strings", "invalid_type");
      request_.stop_sequences.push_back(stop.get<std::string>());
    }
  }

  void ReadThinking() {
    const Json* thinking = own_.Object(Own("thinking"));
    if (thinking == nullptr) return;
    JsonFields fields(*thinking, "thinking", &error_);
    const std::string type = fields.Text("type").value_or("");
    if (type == "enabled") {
      const auto budget = fields.Integer("budget_tokens", 1, std::numeric_limits<int>::max());
      if (!budget.has_value()) {
        return fields.Fail("budget_tokens", "expected the most tokens of the thought",
                           "missing_field");
      }
      SetThinkingBudget(budget, &request_);
      SetThinking(true, "thinking.type", &request_);
    } else if (type == "disabled") {
      thinks_ = false;
      SetThinking(false, "thinking.type", &request_);
    } else if (type != "adaptive") {
      fields.Fail("type",
                  fmt::format("expected enabled, disabled or adaptive, found \"{}\"", type));
    }
  }

  void ReadOutput() {
    if (const Json* config = own_.Object(Own("output_config"))) {
      JsonFields fields(*config, "output_config", &error_);
      const auto effort = fields.Text("effort");
      // Ignores the effort in a request that switches thoughts off.
      const Json* enabled = own_.Any("enable_thinking");
      if (thinks_ && (enabled == nullptr || *enabled == true)) {
        SetEffort(effort, "output_config.effort", &error_, &request_);
      }
      if (const Json* format = fields.Object("format")) ReadFormat(*format, "output_config.format");
    }
    if (const Json* format = own_.Object(Own("output_format")))
      ReadFormat(*format, "output_format");
  }

  void ReadFormat(const Json& format, const std::string& path) {
    JsonFields fields(format, path, &error_);
    const std::string type = fields.Text("type").value_or("");
    if (type != "json_schema" || fields.Object("schema") == nullptr) {
      return Fail(path, "expected a format of type json_schema with a schema");
    }
    format_ = {.json = &format, .path = path};
  }

  ChatMessages messages_;
  bool thinks_ = true;  // false: `thinking` switches thoughts off
  FlatFormat format_;
};

}  // namespace

ApiResult<CompletionRequest> ReadMessages(const Json& body, const RequestDefaults& defaults,
                                          ReadScope scope) {
  return MessagesReader(body, defaults).Read(scope);
}

}  // namespace ebb::server
