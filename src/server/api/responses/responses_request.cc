#include "src/server/api/responses/responses_request.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "src/server/api/base/content.h"
#include "src/server/api/openai/chat_fields.h"
#include "src/server/api/openai/chat_tools.h"
#include "src/server/api/openai/request_reader.h"
#include "src/server/api/parts/chat_messages.h"

namespace ebb::server {
namespace {

constexpr size_t kMostItems = kMostMessages;
// kOfChatsNotOfResponses lists members of a chat that have another name here.
constexpr std::string_view kOfChatsNotOfResponses[] = {
    "messages",   "response_format",       "json_schema", "reasoning_effort",
    "max_tokens", "max_completion_tokens", "logprobs"};

// Returns the name of a function in a namespace as one word, mcp__files__read, in the form that
// Codex uses.
std::string InNamespace(const std::string& space, const std::string& name) {
  return space + (space.ends_with('_') ? "" : "__") + name;
}

class ResponsesReader final : public RequestReader {
 public:
  ResponsesReader(const Json& body, const RequestDefaults& defaults, ResponseStore* stored)
      : RequestReader(Endpoint::kChat, body, defaults),
        stored_(*stored),
        messages_(&request_.chat.messages) {
    request_.prompt_field = "input";
    request_.responses = std::make_shared<ResponsesAnswer>();
  }

  ApiResult<CompletionRequest> Read(ReadScope scope) {
    RefuseWhatIsNotThere();
    ReadInstructions();
    ReadPast();
    ReadInput();
    ReadTools();
    ReadFormat();
    ReadReasoning();
    metadata_ = own_.Object(Own("metadata"));
    if (metadata_ != nullptr) CheckMetadata();
    ResponsesAnswer& answer = *request_.responses;
    answer.stores = own_.Bool(Own("store")).value_or(true);
    // Codex probes a server with a request without items; an empty message lets it succeed.
    if (answer.input.empty() && previous_.empty()) messages_.AddUser("");
    if (!error_.has_value()) answer.echo = Echo();
    if (scope == ReadScope::kAnswer) ReadModel();
    // A last message of the assistant is part of the conversation here and is not continued.
    ReadChatOptions(&fields_, &error_, format_, /*continues=*/false, &request_);
    if (scope == ReadScope::kPrompt) return Take(scope);
    ReadChatOutput();
    ReadShared();
    return Take();
  }

 private:
  // Limits metadata as OpenAI does, since every answer repeats it and the store keeps it.
  void CheckMetadata() {
    constexpr size_t kMostPairs = 16, kMostName = 64, kMostText = 512;
    if (metadata_->size() > kMostPairs) {
      return Fail("metadata", fmt::format("expected at most {} pairs", kMostPairs));
    }
    for (const auto& [name, value] : metadata_->items()) {
      const bool is_short = name.size() <= kMostName && value.is_string() &&
                            value.get_ref<const std::string&>().size() <= kMostText;
      if (is_short) continue;
      return Fail("metadata", fmt::format("expected names of at most {} bytes and texts of "
                                          "at most {}",
                                          kMostName, kMostText));
    }
  }

  void RefuseWhatIsNotThere() {
    for (const std::string_view name : kOfChatsNotOfResponses) {
      if (own_.Any(std::string(name)) != nullptr) {
        Refuse(std::string(name), "not a field of /v1/responses");
      }
    }
    if (own_.Bool(Own("background")) == true) {
      Refuse("background", "true is not supported: a response lives as long as its request");
    }
    if (own_.Any(Own("conversation")) != nullptr) {
      Refuse("conversation", "not supported; previous_response_id is");
    }
    if (own_.Any(Own("prompt")) != nullptr) Refuse("prompt", "stored prompts are not supported");
    if (const Json* n = own_.Any("n"); n != nullptr && *n != 1) {
      Refuse("n", "a response has one answer");
    }
    if (const Json* top = own_.Any(Own("top_logprobs")); top != nullptr && *top != 0) {
      Refuse("top_logprobs", "not supported here; /v1/chat/completions has log-probabilities");
    }
    const Json* include = own_.Array("include");
    if (include == nullptr) return;
    for (const Json& one : *include) {
      if (one == "message.output_text.logprobs") {
        Refuse("include",
               "log-probabilities are not supported here; /v1/chat/completions has them");
      }
    }
  }

  // Reads `instructions`: a text, or items such as those of `input`.
  void ReadInstructions() {
    const Json* instructions = own_.Any(Own("instructions"));
    if (instructions == nullptr) return;
    instructions_ = *instructions;
    if (!instructions->is_array()) {
      return messages_.AddSystem(ContentText(instructions, "instructions", &error_));
    }
    for (size_t i = 0; i < instructions->size(); ++i) {
      const Json& item = (*instructions)[i];
      const std::string path = fmt::format("instructions[{}]", i);
      if (item.is_object() && item.contains("role")) {
        ReadItem(item, path);
      } else {
        messages_.AddSystem(ContentText(&item, path, &error_));
      }
    }
  }

  void ReadPast() {
    const auto id = own_.Text(Own("previous_response_id"));
    if (!id.has_value()) return;
    const auto before = stored_.Find(*id);
    if (before == nullptr) {
      return Fail("previous_response_id",
                  fmt::format("there is no response \"{}\"; it was not stored, has been deleted or "
                              "had to make room",
                              *id),
                  "previous_response_not_found");
    }
    previous_ = *id;
    for (const Json& item : before->Conversation()) ReadItem(item, "previous_response_id");
    request_.responses->before = before;
  }

  void ReadInput() {
    const Json* given = own_.Any(Own("input"));
    Json& input = request_.responses->input;
    if (given == nullptr) {
      return Fail("input", "expected a text or an array of items", "missing_field");
    }
    if (given->is_string()) {
      input = Json::array({{{"type", "message"}, {"role", "user"}, {"content", *given}}});
    } else if (given->is_array()) {
      input = *given;
    } else {
      return Fail("input", "expected a string or an array", "invalid_type");
    }
    if (input.size() > kMostItems) {
      return Fail("input",
                  fmt::format("expected at most {} items, found {}", kMostItems, input.size()),
                  "request_too_large");
    }
    for (size_t i = 0; i < input.size() && !error_.has_value(); ++i) {
      const std::string path = fmt::format("input[{}]", i);
      if (ResolveReference(&input[i])) {
        ReadItem(input[i], path);
      } else {
        request_.ignored.push_back(path);
      }
    }
  }

  // Replaces a reference to an item of a stored response by the item, so that the request does not
  // depend on the stored response. Returns false if there is no such item.
  bool ResolveReference(Json* item) const {
    if (!item->is_object()) return true;
    const auto text = [&](const char* name) {
      const auto found = item->find(name);
      return found != item->end() && found->is_string() ? found->get<std::string>() : "";
    };
    const std::string type = text("type");
    const bool has_content = item->contains("role") || item->contains("content");
    if (type != "item_reference" && (!type.empty() || has_content)) return true;
    std::optional<Json> found = stored_.FindItem(text("id"));
    if (!found.has_value()) return false;
    *item = *std::move(found);
    return true;
  }

  void ReadItem(const Json& item, const std::string& path) {
    if (error_.has_value()) return;
    if (item.is_string()) return messages_.AddUser(item.get<std::string>());
    if (!item.is_object()) return Fail(path, "expected an object", "invalid_type");
    JsonFields fields(item, path, &error_);
    const std::string type = fields.Text("type").value_or("message");
    if (type == "message") return ReadMessage(&fields);
    if (type == "reasoning") return ReadThought(&fields);
    if (type == "function_call") return ReadCall(&fields);
    if (type == "function_call_output") {
      std::string id = fields.Text("call_id").value_or("");
      return messages_.AddToolAnswer(std::move(id), OutputText(&fields));
    }
    if (type.ends_with("_call") || type.ends_with("_call_output") || type.starts_with("mcp_") ||
        type == "tool_search_output") {
      return ReadOtherTool(type, item, path, &fields);
    }
    if (item.contains("role")) return ReadMessage(&fields);
    // Ignores other kinds of items: other servers have more, and OpenAI may add some.
    request_.ignored.push_back(path);
  }

  void ReadCall(JsonFields* fields) {
    std::string id = fields->Text("call_id").value_or("");
    std::string name = Needed("name", fields);
    const std::string space = fields->Text("namespace").value_or("");
    if (!space.empty()) name = InNamespace(space, name);
    const Json* arguments = fields->Any("arguments");
    messages_.AddCall(std::move(id), std::move(name), arguments == nullptr ? Json() : *arguments);
  }

  std::string OutputText(JsonFields* fields) {
    return ResultText(fields->Any("output"), fields->PathOf("output"), &request_.ignored);
  }

  // Reads calls of tools that are no functions (custom_tool_call, local_shell_call, ...) and their
  // results. A call that the client carried out has a call_id and is shown to the model as a
  // function's; one that a server carried out is ignored.
  void ReadOtherTool(std::string_view type, const Json& item, const std::string& path,
                     JsonFields* fields) {
    const std::string id = fields->Text("call_id").value_or("");
    if (id.empty() || type.starts_with("mcp_")) return request_.ignored.push_back(path);
    if (type.ends_with("_output")) return messages_.AddToolAnswer(id, OutputText(fields));
    Json arguments = item;
    for (const char* name : {"type", "id", "status", "call_id", "name", "namespace"}) {
      arguments.erase(name);
    }
    type.remove_suffix(std::string_view("_call").size());
    messages_.AddCall(id, fields->Text("name").value_or(std::string(type)), arguments);
  }

  void ReadMessage(JsonFields* fields) {
    const std::string role = Needed("role", fields);
    const Json* content = fields->Any("content");
    const std::string path = fields->PathOf("content");
    if (role == "user") return messages_.AddUser(ContentText(content, path, &error_));
    if (role == "assistant") return ReadAnswer(content, path, fields);
    if (role == "system" || role == "developer") {
      return messages_.AddSystem(ContentText(content, path, &error_));
    }
    if (role == "tool") {
      return messages_.AddToolAnswer(fields->Text("tool_call_id").value_or(""),
                                     ResultText(content, path, &request_.ignored));
    }
    fields->Fail(
        "role",
        fmt::format("expected user, assistant, tool, system or developer, found \"{}\"", role));
  }

  // Reads an item of the assistant, possibly in the form of a chat's message, with its thought and
  // its calls.
  void ReadAnswer(const Json* content, const std::string& path, JsonFields* fields) {
    std::vector<MessagePart> parts = ReadContent(content, path, &error_);
    if (const Json* calls = fields->Array("tool_calls")) {
      for (size_t i = 0; i < calls->size(); ++i) {
        const std::string call_path = fmt::format("{}[{}]", fields->PathOf("tool_calls"), i);
        if (!(*calls)[i].is_object()) {
          return Fail(call_path, "expected an object", "invalid_type");
        }
        parts.push_back(ReadCallPart((*calls)[i], call_path));
      }
    }
    for (const char* name : {"reasoning_content", "reasoning"}) {
      AddThought(ResultText(fields->Any(name), fields->PathOf(name), &request_.ignored));
    }
    LeaveOutLost(&parts, &request_.ignored);
    const auto have = [&](MessagePart::Kind kind) {
      return std::ranges::find(parts, kind, &MessagePart::kind) != parts.end();
    };
    for (const MessagePart& part : parts) {
      if (part.kind == MessagePart::Kind::kThought) AddThought(part.text);
    }
    const std::string text = JoinedText(parts);
    if (!text.empty() || !have(MessagePart::Kind::kCall)) messages_.AddText(text);
    for (const MessagePart& part : parts) {
      if (part.kind != MessagePart::Kind::kCall) continue;
      if (part.name.empty()) Fail(part.path + ".name", "expected a function", "missing_field");
      messages_.AddCall(part.id, part.name, part.arguments);
    }
  }

  void AddThought(const std::string& text) {
    if (!text.empty()) messages_.AddThought(text);
  }

  // Reads a thought: its content if there is one, else its summary.
  void ReadThought(JsonFields* fields) {
    for (const char* name : {"content", "summary"}) {
      const std::string text =
          ResultText(fields->Any(name), fields->PathOf(name), &request_.ignored);
      if (!text.empty()) return messages_.AddThought(text);
    }
  }

  void ReadTools() {
    const Json* tools = own_.Array(Own("tools"));
    if (tools == nullptr) return;
    tools_ = *tools;
    for (size_t i = 0; i < tools->size() && !error_.has_value(); ++i) {
      const std::string path = fmt::format("tools[{}]", i);
      const Json& tool = (*tools)[i];
      if (!tool.is_object()) return Fail(path, "expected an object", "invalid_type");
      const Json* inner = tool.contains("tools") ? &tool["tools"] : nullptr;
      const bool is_namespace = tool.contains("type") && tool["type"] == "namespace";
      if (!is_namespace || inner == nullptr || !inner->is_array()) {
        ReadTool(tool, path, /*space=*/"");
        continue;
      }
      JsonFields fields(tool, path, &error_);
      const std::string space = Needed("name", &fields);
      for (size_t j = 0; j < inner->size() && !error_.has_value(); ++j) {
        ReadTool((*inner)[j], fmt::format("{}.tools[{}]", path, j), space);
      }
    }
  }

  // Reads a tool. `space`: the tool's namespace; empty: none.
  void ReadTool(const Json& tool, const std::string& path, const std::string& space) {
    if (!tool.is_object()) return Fail(path, "expected an object", "invalid_type");
    JsonFields fields(tool, path, &error_);
    // Ignores tools that a server carries out or that are no functions.
    if (fields.Text("type").value_or("") != "function") return request_.ignored.push_back(path);
    std::string name = fields.Text("name").value_or("");
    if (!space.empty()) {
      const std::string whole = InNamespace(space, name);
      request_.responses->namespaced[whole] = {space, std::exchange(name, whole)};
    }
    AddTool(&fields, std::move(name), path, &request_);
  }

  void ReadFormat() {
    const Json* text = own_.Object(Own("text"));
    if (text == nullptr) return;
    JsonFields fields(*text, "text", &error_);
    format_ = {.json = fields.Object("format"), .path = "text.format"};
  }

  void ReadReasoning() {
    const Json* reasoning = own_.Object(Own("reasoning"));
    if (reasoning == nullptr) return;
    reasoning_ = *reasoning;
    JsonFields fields(*reasoning, "reasoning", &error_);
    SetEffort(fields.Text("effort"), "reasoning.effort", &error_, &request_);
    for (const char* name : {"summary", "generate_summary"}) {
      if (fields.Text(name).has_value()) request_.responses->wants_summary = true;
    }
  }

  Json Echo() const {
    const auto given = [this](const char* name, Json otherwise) {
      const auto found = body_.find(name);
      return found == body_.end() || found->is_null() ? std::move(otherwise) : *found;
    };
    return {
        {"background", false},
        {"instructions", instructions_},
        {"max_output_tokens", given("max_output_tokens", nullptr)},
        {"metadata", metadata_ == nullptr ? Json::object() : *metadata_},
        {"parallel_tool_calls", given("parallel_tool_calls", true)},
        {"previous_response_id", previous_.empty() ? Json() : Json(previous_)},
        {"reasoning",
         reasoning_.is_null() ? Json{{"effort", nullptr}, {"summary", nullptr}} : reasoning_},
        {"store", request_.responses->stores},
        {"temperature", given("temperature", nullptr)},
        {"text", {{"format", format_.json == nullptr ? Json{{"type", "text"}} : *format_.json}}},
        {"tool_choice", given("tool_choice", "auto")},
        {"tools", tools_},
        {"top_p", given("top_p", nullptr)},
        {"truncation", "disabled"},
        {"user", given("user", nullptr)}};
  }

  static std::string Needed(const char* name, JsonFields* fields) {
    auto text = fields->Text(name);
    if (!text.has_value() || text->empty()) {
      fields->Fail(name, "expected a text", "missing_field");
      return "";
    }
    return *std::move(text);
  }

  void Refuse(const std::string& name, const std::string& message) {
    Fail(name, message, "unsupported");
  }

  ResponseStore& stored_;
  ChatMessages messages_;
  FlatFormat format_;
  // Holds fields that the response repeats.
  Json instructions_;
  std::string previous_;
  const Json* metadata_ = nullptr;
  Json tools_ = Json::array();
  Json reasoning_;
};

}  // namespace

ApiResult<CompletionRequest> ReadResponses(const Json& body, const RequestDefaults& defaults,
                                           ResponseStore* stored, ReadScope scope) {
  return ResponsesReader(body, defaults, stored).Read(scope);
}

}  // namespace ebb::server
