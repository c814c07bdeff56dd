#include "src/model/chat/chat.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <chat.h>
#include <fmt/format.h>
#include <llama.h>
#include <template_budget.h>

#include "ebb/grammar.h"
#include "src/model/chat/answer_syntax.h"
#include "src/model/chat/call_grammar.h"
#include "src/model/chat/chat_request.h"
#include "src/model/chat/message_mends.h"
#include "src/model/chat/plain_texts.h"
#include "src/model/chat/system_messages.h"
#include "src/model/chat/tool_schemas.h"
#include "src/model/loaded/loaded_model.h"
#include "src/model/schema/json_grammar.h"

namespace ebb {

namespace {

// Parses the template again to get the reason of an error: common_chat_templates_init() rethrows a
// sliced exception, which has lost it.
std::string ParseError(const std::string& source) {
  try {
    common_chat_template parsed(source, "", "");
  } catch (const std::exception& error) {
    return error.what();
  }
  return "it cannot be analysed";
}

// kWork and kWorkPerMessage limit the work of a rendering to about a second, far more than any
// published template needs (docs/dev/formats.md).
constexpr uint64_t kWork = uint64_t{512} << 20;
constexpr uint64_t kWorkPerMessage = uint64_t{1} << 20;
constexpr uint64_t kWorkPerByte = 1024;
constexpr size_t kMaxSourceBytes = size_t{1} << 20;
// kMaxAnalysedBytes limits the renderings of the short conversations by which a template is
// analysed; kMaxOutput limits other renderings.
constexpr uint64_t kMaxAnalysedBytes = uint64_t{256} << 10;
constexpr uint64_t kMaxOutput = uint64_t{1} << 20;
constexpr uint64_t kMaxOutputPerByte = 16;

Status BeyondLimits() {
  return Unsupported("the chat template goes beyond its limits of work, output or depth");
}

// Returns the template's own error message, without the engine's account of where it was raised.
std::string OwnWords(std::string_view error) {
  for (const std::string_view before : {"\nError: ", "Jinja Exception: "}) {
    const size_t at = error.find(before);
    if (at != std::string_view::npos) error.remove_prefix(at + before.size());
  }
  return std::string(error);
}

uint64_t BytesOf(const ChatRequest& request) {
  uint64_t bytes = 0;
  for (const ChatMessage& message : request.messages) {
    bytes += message.content.size() + message.reasoning_content.size();
    for (const ToolCall& call : message.tool_calls) {
      bytes += call.name.size() + call.arguments.size() + call.id.size();
    }
  }
  for (const Tool& tool : request.tools) {
    bytes += tool.name.size() + tool.description.size() + tool.parameters.size();
  }
  return bytes;
}

constexpr const char* kNoParameters = R"({"type": "object", "properties": {}})";

common_chat_tool_choice ChoiceFor(const std::string& choice) {
  if (choice == "auto") return COMMON_CHAT_TOOL_CHOICE_AUTO;
  if (choice == "none") return COMMON_CHAT_TOOL_CHOICE_NONE;
  return COMMON_CHAT_TOOL_CHOICE_REQUIRED;
}

common_chat_templates_inputs InputsFor(const ChatRequest& request) {
  common_chat_templates_inputs inputs;
  for (const ChatMessage& message : request.messages) {
    common_chat_msg& input = inputs.messages.emplace_back();
    input.role = message.role;
    input.content = message.content;
    input.reasoning_content = message.reasoning_content;
    for (const ToolCall& call : message.tool_calls) {
      input.tool_calls.push_back({.name = call.name, .arguments = call.arguments, .id = call.id});
    }
    input.tool_name = message.name;
    input.tool_call_id = message.tool_call_id;
  }
  for (const Tool& tool : request.tools) {
    inputs.tools.push_back(
        {.name = tool.name,
         .description = tool.description,
         .parameters = tool.parameters.empty() ? kNoParameters : tool.parameters});
  }
  inputs.tool_choice = ChoiceFor(request.tool_choice);
  inputs.parallel_tool_calls = request.parallel_tool_calls;
  inputs.enable_thinking = request.thinking == Thinking::kModelDefault;
  inputs.chat_template_kwargs = request.template_arguments;
  if (request.thinking == Thinking::kOff) {
    // Sets both names, because templates read one or the other.
    for (const char* name : {"enable_thinking", "thinking"}) {
      inputs.chat_template_kwargs[name] = "false";
    }
  }
  inputs.add_generation_prompt = request.opens_answer;
  return inputs;
}

// Returns the grammar of a schema; errors name `field`.
Result<std::string> SchemaGrammar(const std::string& field, const std::string& schema) {
  Result<std::string> grammar = GrammarOfSchema(schema);
  if (grammar.ok()) return grammar;
  return InvalidArgument(field, grammar.status().message());
}

// Returns the grammar of the text format that the request asks for; empty: it asks for none.
Result<std::string> FormatGrammar(const ChatRequest& request) {
  switch (request.response_format) {
    case ResponseFormat::kJsonObject:
      return SchemaGrammar("response_format", R"({"type": "object"})");
    case ResponseFormat::kJsonSchema:
      return SchemaGrammar("response_format.json_schema", request.json_schema);
    default:
      return request.grammar;
  }
}

// kAnalysisStart begins gpt-oss's thoughts. The common library names no other mark of its channels,
// so this one identifies the format.
constexpr std::string_view kAnalysisStart = "<|channel|>analysis<|message|>";

void SetTags(const common_chat_params& params, const std::string& source, ChatPrompt* prompt) {
  if (params.thinking_start_tag == kAnalysisStart) {
    prompt->channels = {.message = "<|start|>assistant", .answer = "<|channel|>final<|message|>"};
  }
  if (params.supports_thinking && !params.thinking_end_tags.empty()) {
    prompt->thinking_start = params.thinking_start_tag;
    prompt->thinking_end = params.thinking_end_tags.front();
  }
  // If a template only cuts thoughts out of earlier turns (R1 distillates before February 2025),
  // the library's analysis finds no tags, or only the closing one, so they are searched for in the
  // source.
  constexpr std::string_view kStart = "<think>";
  constexpr std::string_view kEnd = "</think>";
  if (prompt->thinking_end.empty() && source.find(kEnd) != std::string::npos) {
    prompt->thinking_end = kEnd;
  }
  if (prompt->thinking_start.empty() && prompt->thinking_end == kEnd) {
    prompt->thinking_start = kStart;
  }
  if (prompt->thinking_start.empty() || prompt->thinking_end.empty()) {
    prompt->thinking_start.clear();
    prompt->thinking_end.clear();
    return;
  }
  const std::string_view opening = params.generation_prompt;
  const size_t start = opening.rfind(prompt->thinking_start);
  const size_t end = opening.rfind(prompt->thinking_end);
  prompt->opens_in_thinking =
      start != std::string::npos && (end == std::string::npos || end < start);
}

GrammarTrigger TriggerFrom(const common_grammar_trigger& trigger) {
  using Kind = GrammarTrigger::Kind;
  switch (trigger.type) {
    case COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN:
      return {.kind = Kind::kToken, .token = trigger.token};
    case COMMON_GRAMMAR_TRIGGER_TYPE_WORD:
      return {.kind = Kind::kText, .text = trigger.value};
    case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN:
      return {.kind = Kind::kPattern, .text = trigger.value};
    case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL:
      return {.kind = Kind::kPattern, .text = "^" + trigger.value + "$"};
  }
  return {};
}

}  // namespace

struct ChatTemplate::Impl {
  std::string source;
  common_chat_templates_ptr templates;
  std::optional<SpecialTexts> specials;
  std::optional<PlainTexts> plain_texts;

  // Renders a short conversation, so that the common library caches its analysis of the template.
  // Returns the tags of a thought.
  [[nodiscard]] std::vector<std::string> Analyse() const;
  // Checks that the template supports the request; errors name the field that it cannot take.
  [[nodiscard]] Status CheckSupport(const ChatRequest& request) const;
  [[nodiscard]] Result<common_chat_params> Apply(const ChatRequest& request) const;
  // Returns the template's output for `tools`, which the answer may call, as far as it does not
  // depend on the conversation. prompt: the template's output for the request.
  [[nodiscard]] Result<common_chat_params> ApplyTools(const ChatRequest& request,
                                                      const common_chat_params& prompt) const;
  // Sets the prompt's grammar of calls. calls: from ApplyTools(). format: the grammar of texts;
  // empty: any text is allowed.
  [[nodiscard]] Status SetCallGrammar(const ChatRequest& request, const common_chat_params& calls,
                                      const std::vector<BoundedNumbers>& numbers,
                                      const std::string& format, ChatPrompt* prompt) const;
  // Applies the template. If it refuses the request, tries other forms of the messages, and without
  // template arguments, and records the changes in `prompt`.
  [[nodiscard]] Result<common_chat_params> ApplyMended(ChatRequest* request,
                                                       ChatPrompt* prompt) const;
  // Returns whether the template reads this argument.
  [[nodiscard]] bool Reads(std::string_view argument) const;
  // Returns the messages with the texts of system messages moved to places where the template shows
  // them.
  [[nodiscard]] Result<std::vector<ChatMessage>> Placed(const std::vector<ChatMessage>& messages);

 private:
  std::optional<SystemSupport> system_support_;  // once it was asked for
};

ChatTemplate::ChatTemplate() : impl_(std::make_unique<Impl>()) {}
ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<ChatTemplate>> ChatTemplate::Parse(const llama_model* model,
                                                          const std::string& source) {
  SilenceLog();
  std::unique_ptr<ChatTemplate> parsed(new ChatTemplate());
  parsed->impl_->source = source;
  if (source.empty()) {
    const char* own = llama_model_chat_template(model, nullptr);
    if (own == nullptr) {
      return Unsupported("the model file has no chat template; give the prompt as raw text");
    }
    parsed->impl_->source = own;
  }
  if (parsed->impl_->source.size() > kMaxSourceBytes) return BeyondLimits();
  TemplateBudget budget(kWork, kMaxAnalysedBytes);
  std::string error;
  try {
    parsed->impl_->templates = common_chat_templates_init(model, source);
  } catch (const std::exception&) {
    error = ParseError(parsed->impl_->source);
  }
  std::vector<std::string> tags;
  if (!budget.exceeded() && error.empty()) tags = parsed->impl_->Analyse();
  if (budget.exceeded()) return BeyondLimits();
  if (!error.empty()) {
    return Corrupt(fmt::format("the chat template does not parse: {}", error));
  }
  Impl& impl = *parsed->impl_;
  impl.source = common_chat_templates_source(impl.templates.get());  // "chatml" is a name
  impl.specials.emplace(model == nullptr ? nullptr : llama_model_get_vocab(model));
  impl.plain_texts.emplace(&*impl.specials, impl.source, std::move(tags));
  return parsed;
}

std::vector<std::string> ChatTemplate::Impl::Analyse() const {
  common_chat_params params;
  try {
    params =
        common_chat_templates_apply(templates.get(), InputsFor({.messages = {{"user", "hi"}}}));
  } catch (const std::exception&) {
    // Continues without an analysis, because the template may want another conversation; the first
    // conversation that it accepts is analysed then.
  }
  ChatPrompt prompt;
  SetTags(params, source, &prompt);
  return {prompt.thinking_start, prompt.thinking_end};
}

Status ChatTemplate::Impl::CheckSupport(const ChatRequest& request) const {
  const auto abilities = common_chat_templates_get_caps(templates.get());
  if (MayCall(request) && !abilities.at("supports_tools")) {
    return Unsupported("tools", "the chat template of the model does not support tools");
  }
  return OkStatus();
}

Result<common_chat_params> ChatTemplate::Impl::Apply(const ChatRequest& request) const {
  common_chat_templates_inputs inputs = InputsFor(request);
  const uint64_t bytes = BytesOf(request);
  TemplateBudget budget(kWork + kWorkPerMessage * request.messages.size() + kWorkPerByte * bytes,
                        kMaxOutput + kMaxOutputPerByte * bytes);
  std::string first_error;
  try {
    return common_chat_templates_apply(templates.get(), inputs);
  } catch (const std::exception& error) {
    if (budget.exceeded()) return BeyondLimits();
    first_error = error.what();
    // The analysis of the answer's format may fail although rendering works, so rendering alone is
    // tried.
    inputs.force_pure_content = true;
  }
  try {
    common_chat_params params = common_chat_templates_apply(templates.get(), inputs);
    if (!MayCall(request)) return params;
    return Unsupported(
        "tools", fmt::format("cannot derive the format of tool calls from the chat template: {}",
                             OwnWords(first_error)));
  } catch (const std::exception& error) {
    if (budget.exceeded()) return BeyondLimits();
    return Unsupported(fmt::format("the chat template refuses: {}", OwnWords(error.what())));
  }
}

Result<common_chat_params> ChatTemplate::Impl::ApplyMended(ChatRequest* request,
                                                           ChatPrompt* prompt) const {
  Result<common_chat_params> params = Apply(*request);
  for (const auto& [name, value] : request->template_arguments) {
    if (!Reads(name)) prompt->unused_arguments.push_back(name);
  }
  if (params.ok() && ShowsTexts(params->prompt, request->messages)) return params;
  const Result<common_chat_params> as_it_is = std::move(params);
  std::vector<ChatRequest> tries = {*request};
  if (!request->template_arguments.empty()) tries.push_back(*request);
  tries.back().template_arguments.clear();
  for (const ChatRequest& one : tries) {
    for (MendedMessages& mended : MendedForms(one.messages)) {
      if (&one == &tries.front() && mended.changes.empty()) continue;  // tried already
      ChatRequest other = one;
      other.messages = std::move(mended.messages);
      params = Apply(other);
      if (!params.ok() || !ShowsTexts(params->prompt, one.messages)) continue;
      if (one.template_arguments.empty()) {
        prompt->unused_arguments.clear();
        for (const auto& [name, value] : request->template_arguments) {
          prompt->unused_arguments.push_back(name);
        }
      }
      std::ranges::move(mended.changes, std::back_inserter(prompt->mended));
      *request = std::move(other);
      return params;
    }
  }
  return as_it_is;
}

bool ChatTemplate::Impl::Reads(std::string_view argument) const {
  // The common library passes some arguments on under further names.
  std::vector<std::string_view> names = {argument};
  if (argument == "reasoning_effort") names.emplace_back("reasoning_strength");
  if (argument == "preserve_reasoning") {
    names.insert(names.end(), {"preserve_thinking", "clear_thinking", "drop_thinking",
                               "truncate_history_thinking"});
  }
  return std::ranges::any_of(
      names, [&](std::string_view name) { return source.find(name) != std::string::npos; });
}

Result<common_chat_params> ChatTemplate::Impl::ApplyTools(const ChatRequest& request,
                                                          const common_chat_params& prompt) const {
  // A short conversation suffices if the answer begins in the same way after it.
  ChatRequest brief = request;
  brief.messages = {{"user", "hi"}};
  Result<common_chat_params> params = Apply(brief);
  if (params.ok() && params->generation_prompt == prompt.generation_prompt) return params;
  return Apply(request);
}

Status ChatTemplate::Impl::SetCallGrammar(const ChatRequest& request,
                                          const common_chat_params& calls,
                                          const std::vector<BoundedNumbers>& numbers,
                                          const std::string& format, ChatPrompt* prompt) const {
  const bool is_chosen = request.tool_choice == "auto";
  const auto admitted = [&](const std::string& grammar) {
    return request.parallel_tool_calls ? grammar : WithOneCall(grammar);
  };
  if (is_chosen && format.empty()) {
    prompt->grammar = MendedGrammar(admitted(calls.grammar), numbers);
    if (!calls.grammar_lazy) {
      prompt->grammar_prefix =
          calls.grammar.empty() ? "" : prompt->syntax->params.generation_prompt;
      return OkStatus();
    }
    for (const common_grammar_trigger& trigger : calls.grammar_triggers) {
      prompt->grammar_triggers.push_back(TriggerFrom(trigger));
    }
    return OkStatus();
  }
  // Makes the library's other grammar too, because both are needed: the required one shows the
  // format of calls, the lazy one the triggers at which they begin.
  ChatRequest other = request;
  other.tool_choice = is_chosen ? "required" : "auto";
  EBB_ASSIGN_OR_RETURN(const common_chat_params others, ApplyTools(other, calls));
  const std::string& required = is_chosen ? others.grammar : calls.grammar;
  const std::string& chosen = is_chosen ? calls.grammar : others.grammar;
  const std::string only_calls = OnlyCalls(admitted(required), chosen);
  if (only_calls.empty()) {
    return Unsupported("tool_choice",
                       "cannot derive from the chat template how to force a tool call");
  }
  prompt->grammar =
      MendedGrammar(is_chosen ? EitherGrammar(format, only_calls) : only_calls, numbers);
  return OkStatus();
}

Result<std::vector<ChatMessage>> ChatTemplate::Impl::Placed(
    const std::vector<ChatMessage>& messages) {
  if (std::ranges::none_of(messages, IsSystem)) return messages;
  if (!system_support_.has_value()) {
    system_support_ =
        FindSystemSupport([&](const std::vector<ChatMessage>& some) -> std::optional<std::string> {
          const TemplateBudget budget(kWork, kMaxAnalysedBytes);
          common_chat_templates_inputs inputs = InputsFor({.messages = some});
          inputs.force_pure_content = true;
          try {
            return common_chat_templates_apply(templates.get(), inputs).prompt;
          } catch (const std::exception&) {
            return std::nullopt;
          }
        });
  }
  return PlaceSystemMessages(messages, *system_support_);
}

Result<ChatPrompt> ChatTemplate::Render(const ChatRequest& given) const {
  SilenceLog();
  EBB_RETURN_IF_ERROR(CheckRequest(given));
  EBB_RETURN_IF_ERROR(impl_->CheckSupport(given));
  ChatRequest request = given;
  ChatPrompt prompt;
  if (!common_chat_templates_get_caps(impl_->templates.get()).at("supports_tool_calls")) {
    MendedMessages mended = WithCallsAsTexts(given.messages);
    request.messages = std::move(mended.messages);
    prompt.mended = std::move(mended.changes);
  }
  EBB_ASSIGN_OR_RETURN(request.messages, impl_->Placed(request.messages));
  EBB_ASSIGN_OR_RETURN(const std::string format, FormatGrammar(request));
  const bool may_call = MayCall(request);
  // The prompt shows the tools as they are, while the grammar of calls uses schemas that it can
  // enforce.
  ChatRequest told = request;
  if (may_call) told.tool_choice = "none";
  EBB_ASSIGN_OR_RETURN(common_chat_params params, impl_->ApplyMended(&told, &prompt));
  request.messages = told.messages;
  request.template_arguments = told.template_arguments;
  prompt.text = params.prompt;
  // The marked request gives the prompt's text; grammars and parsers come from the request without
  // marks.
  if (const auto marked = impl_->plain_texts->Mark(told)) {
    EBB_ASSIGN_OR_RETURN(const common_chat_params shown, impl_->Apply(marked->request));
    prompt.text = shown.prompt;
    PlainTexts::TakeMarks(*marked, &prompt);
  }
  prompt.stops = params.additional_stops;
  if (!may_call) {
    SetTags(params, impl_->source, &prompt);
    prompt.syntax = SyntaxFrom(params, prompt, MayCall(request));
    prompt.grammar = format;
    prompt.after_thought = prompt.channels.message + prompt.channels.answer;
    return prompt;
  }
  ToolSchemas schemas = RewriteToolSchemas(request.tools);
  prompt.widened = std::move(schemas.widened);
  ChatRequest calls = request;
  calls.tools = std::move(schemas.tools);
  const auto named = std::ranges::find(calls.tools, request.tool_choice, &Tool::name);
  if (named != calls.tools.end()) {
    const std::string field = fmt::format("tools[{}].", named - calls.tools.begin());
    std::erase_if(prompt.widened,
                  [&](const std::string& path) { return !path.starts_with(field); });
    calls.tools = {Tool(*named)};
  }
  EBB_ASSIGN_OR_RETURN(params, impl_->ApplyTools(calls, params));
  SetTags(params, impl_->source, &prompt);
  prompt.syntax = SyntaxFrom(params, prompt, MayCall(request));
  prompt.after_thought = prompt.channels.message;
  EBB_RETURN_IF_ERROR(impl_->SetCallGrammar(calls, params, schemas.numbers, format, &prompt));
  return prompt;
}

ModelChat::ModelChat(const llama_model* model, std::string source)
    : model_(model), source_(std::move(source)), specials_(llama_model_get_vocab(model)) {}

Result<ChatPrompt> ModelChat::Format(const ChatRequest& request) {
#ifndef EBB_COMMON_IS_PATCHED
  // The unpatched common library passes templates the time by localtime(). All threads of the
  // process share its result, so renderings run one at a time. With the patch no rendering waits
  // for another.
  static Mutex one_at_a_time;
  const MutexLock only(one_at_a_time);
#endif
  EBB_ASSIGN_OR_RETURN(std::unique_ptr<ChatTemplate> mine, Take());
  Result<ChatPrompt> prompt = mine->Render(request);
  const MutexLock lock(mutex_);
  idle_.push_back(std::move(mine));
  return prompt;
}

Result<std::unique_ptr<ChatTemplate>> ModelChat::Take() {
  {
    const MutexLock lock(mutex_);
    if (!failure_.ok()) return failure_;
    if (!idle_.empty()) {
      std::unique_ptr<ChatTemplate> taken = std::move(idle_.back());
      idle_.pop_back();
      return taken;
    }
  }
  Result<std::unique_ptr<ChatTemplate>> parsed = ChatTemplate::Parse(model_, source_);
  if (!parsed.ok()) {
    const MutexLock lock(mutex_);
    failure_ = parsed.status();
  }
  return parsed;
}

bool ChatTemplate::TakesTools() const {
  return common_chat_templates_get_caps(impl_->templates.get()).at("supports_tools");
}

bool ModelChat::TakesTools() {
  Result<std::unique_ptr<ChatTemplate>> mine = Take();
  if (!mine.ok()) return true;  // what is wrong with the template is said when it is rendered
  const bool takes = (*mine)->TakesTools();
  const MutexLock lock(mutex_);
  idle_.push_back(*std::move(mine));
  return takes;
}

bool Model::TakesTools() const { return loaded_->chat->TakesTools(); }

Result<ChatPrompt> Model::FormatChat(const ChatRequest& request) const {
  return loaded_->chat->Format(request);
}

Result<ChatPrompt> Model::FormatChat(std::span<const ChatMessage> messages,
                                     Thinking thinking) const {
  return FormatChat({.messages = {messages.begin(), messages.end()}, .thinking = thinking});
}

}  // namespace ebb
