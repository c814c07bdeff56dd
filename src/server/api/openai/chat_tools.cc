#include "src/server/api/openai/chat_tools.h"

#include <algorithm>
#include <list>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace ebb::server {
namespace {

class ToolReader {
 public:
  ToolReader(JsonFields* fields, std::optional<ApiError>* error, CompletionRequest* request)
      : fields_(fields), error_(error), request_(request) {}

  void Read() {
    ReadTools("tools");
    ReadTools("functions");
    if (const auto parallel = fields_->Bool("parallel_tool_calls")) {
      request_->chat.parallel_tool_calls = *parallel;
    }
    if (fields_->Array("functions") != nullptr && fields_->Array("tools") == nullptr) {
      request_->answers_with_function_call = true;
      request_->chat.parallel_tool_calls = false;
    }
    for (const char* name : {"function_call", "tool_choice"}) {
      if (const Json* choice = fields_->Any(name)) ReadChoice(*choice, name);
    }
  }

 private:
  void ReadTools(const std::string& name) {
    const Json* tools = fields_->Array(name);
    if (tools == nullptr) return;
    for (size_t i = 0; i < tools->size() && !error_->has_value(); ++i) {
      ReadTool((*tools)[i], fmt::format("{}[{}]", name, i));
    }
  }

  // Reads a tool. The members of its function are in an object `function` or in the tool itself.
  void ReadTool(const Json& json, const std::string& path) {
    if (!json.is_object()) return Fail(path, "expected an object", "invalid_type");
    JsonFields fields(json, path, error_);
    const std::string type = fields.Text("type").value_or("function");
    const bool is_function =
        type == "function" || (type == "custom" && json.contains("input_schema"));
    // Ignores tools that are no functions or that a server carries out; the functions stay usable.
    if (!is_function) return request_->ignored.push_back(path);
    const Json* function = fields.Object("function");
    JsonFields own(function == nullptr ? json : *function,
                   function == nullptr ? path : path + ".function", error_);
    std::string name = own.Text("name").value_or("");
    AddTool(&own, std::move(name), path, request_);
  }

  void SetMode(const std::string& mode) {
    request_->chat.tool_choice = mode == "any" ? "required" : mode;
  }

  void ReadChoice(const Json& choice, const std::string& path) {
    if (choice.is_string()) return SetMode(choice.get<std::string>());
    if (!choice.is_object()) {
      return Fail(path, "expected a string or an object", "invalid_type");
    }
    JsonFields fields(choice, path, error_);
    const std::string type = fields.Text("type").value_or("");
    if (type == "allowed_tools") return ReadAllowed(choice, path);
    for (const std::string_view mode : {"auto", "none", "required", "any"}) {
      if (type == mode) return SetMode(type);
    }
    if (const auto name = NameIn(choice, path)) request_->chat.tool_choice = *name;
  }

  // Returns the name of the tool that a choice names; fails if it names none.
  std::optional<std::string> NameIn(const Json& choice, const std::string& path) {
    JsonFields fields(choice, path, error_);
    for (const char* kind : {"function", "custom"}) {
      const Json* inner = fields.Object(kind);
      if (inner == nullptr) continue;
      JsonFields named(*inner, fields.PathOf(kind), error_);
      return named.Text("name").value_or("");
    }
    if (auto name = fields.Text("name")) return name;
    const std::string type = fields.Text("type").value_or("function");
    if (type == "function" || type == "tool" || type == "custom") {
      fields.Fail(type == "function" ? "function" : "name", "expected the function to call",
                  "missing_field");
    } else {
      fields.Fail("type",
                  fmt::format("expected auto, none, required, allowed_tools or a function, "
                              "found \"{}\"",
                              type),
                  "unsupported");
    }
    return std::nullopt;
  }

  // Removes the tools that are not allowed, so that the model does not know them and cannot call
  // them.
  void ReadAllowed(const Json& choice, const std::string& path) {
    JsonFields outer(choice, path, error_);
    const Json* inner = outer.Object("allowed_tools");
    const std::string inner_path = inner == nullptr ? path : path + ".allowed_tools";
    JsonFields fields(inner == nullptr ? choice : *inner, inner_path, error_);
    SetMode(fields.Text("mode").value_or("auto"));
    const Json* tools = fields.Array("tools");
    if (tools == nullptr) return fields.Fail("tools", "expected tools", "missing_field");
    std::vector<std::string> allowed;
    for (size_t i = 0; i < tools->size() && !error_->has_value(); ++i) {
      const std::string tool_path = fmt::format("{}.tools[{}]", inner_path, i);
      if (!(*tools)[i].is_object()) return Fail(tool_path, "expected an object", "invalid_type");
      if (const auto name = NameIn((*tools)[i], tool_path)) allowed.push_back(*name);
    }
    std::vector<Tool> kept;
    std::vector<ToolPaths> paths;
    for (size_t i = 0; i < request_->chat.tools.size(); ++i) {
      Tool& tool = request_->chat.tools[i];
      if (std::ranges::find(allowed, tool.name) == allowed.end()) continue;
      kept.push_back(std::move(tool));
      paths.push_back(std::move(request_->tool_paths[i]));
    }
    request_->chat.tools = std::move(kept);
    request_->tool_paths = std::move(paths);
  }

  void Fail(const std::string& path, const std::string& message, std::string code) {
    fields_->Fail(path, message, std::move(code));
  }

  JsonFields* const fields_;
  std::optional<ApiError>* const error_;
  CompletionRequest* const request_;
};

}  // namespace

void AddTool(JsonFields* fields, std::string name, const std::string& path,
             CompletionRequest* request) {
  std::vector<Tool>& tools = request->chat.tools;
  const bool is_there = std::ranges::find(tools, name, &Tool::name) != tools.end();
  if (name.empty() || is_there) return request->ignored.push_back(path);
  Tool tool = {.name = std::move(name)};
  tool.description = fields->Text("description").value_or("");
  ToolPaths paths = {.tool = path, .schema = fields->PathOf("parameters")};
  for (const char* member : {"parameters", "input_schema"}) {
    const Json* parameters = fields->Any(member);
    if (parameters == nullptr) continue;
    if (!parameters->is_object()) {
      request->ignored.push_back(fields->PathOf(member));
      continue;
    }
    tool.parameters = parameters->dump();
    paths.schema = fields->PathOf(member);
  }
  tools.push_back(std::move(tool));
  request->tool_paths.push_back(std::move(paths));
}

void ReadChatTools(JsonFields* fields, std::optional<ApiError>* error, CompletionRequest* request) {
  ToolReader(fields, error, request).Read();
}

void CompleteCallIds(std::vector<ChatMessage>* messages) {
  std::list<const ToolCall*> open;
  const auto id_of = [](const ToolCall* call) -> const std::string& { return call->id; };
  const auto name_of = [](const ToolCall* call) -> const std::string& { return call->name; };
  for (size_t i = 0; i < messages->size(); ++i) {
    ChatMessage& message = (*messages)[i];
    for (size_t c = 0; c < message.tool_calls.size(); ++c) {
      ToolCall& call = message.tool_calls[c];
      if (call.id.empty()) call.id = MakeCallId(/*seed=*/0, i, c);
      open.push_back(&call);
    }
    if (message.role != "tool") continue;
    auto answered = std::ranges::find(open, message.tool_call_id, id_of);
    if (message.tool_call_id.empty()) {
      if (!message.name.empty()) answered = std::ranges::find(open, message.name, name_of);
      if (answered == open.end()) answered = open.begin();
      message.tool_call_id =
          answered == open.end() ? MakeCallId(/*seed=*/0, i, 0) : (*answered)->id;
    }
    if (answered != open.end()) open.erase(answered);
  }
}

}  // namespace ebb::server
