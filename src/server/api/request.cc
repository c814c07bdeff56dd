#include "src/server/api/request.h"
#include "ebb/generate.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "ebb/engine.h"
#include "ebb/grammar.h"
#include "ebb/tiers.h"
#include "src/server/api/json_fields.h"
#include "src/server/api/text_format.h"
#include "src/server/engine/prefix_cache.h"
#include "src/store/session_store.h"

namespace ebb::server {
namespace {

constexpr size_t kMostStops = 16;
constexpr size_t kMostPrompts = 16;
constexpr int kMostChoices = 8;
constexpr int kMostLogprobs = 20;
constexpr int kMostTokens = std::numeric_limits<int>::max();
constexpr size_t kMostSaltBytes = 256;

// Fields that would constrain an answer in a way that is not built.
constexpr std::string_view kRefused[] = {"prompt_logprobs", "suffix",  "functions",
                                         "function_call",   "audio",   "web_search_options",
                                         "min_tokens",      "best_of", "stop_token_ids"};

// Reads one request; the first error stands.
class RequestReader {
 public:
  RequestReader(Endpoint endpoint, const Json& body)
      : endpoint_(endpoint), fields_(body, "", &error_) {
    request_.endpoint = endpoint;
  }

  ApiResult<CompletionRequest> Read(const RequestDefaults& defaults) {
    request_.sampling = defaults.sampling;
    request_.session = defaults.session;
    request_.generate = defaults.generate;
    if (defaults.generate.thinking_budget == 0) request_.chat.thinking = Thinking::kOff;
    ReadModel(defaults);
    if (endpoint_ == Endpoint::kChat) {
      ReadChat();
      // How an answer begins is the template's.
      if (fields_.Bool("add_generation_prompt") == false) {
        Fail("add_generation_prompt", "false is not supported", "unsupported");
      }
      ReadChatOutput();
    } else {
      ReadPrompts();
      ReadTextOutput();
    }
    ReadSampling();
    ReadLengths();
    ReadStops();
    ReadStream();
    ReadCache();
    ReadSession();
    ReadOwn(defaults);
    RefuseOthers();
    if (!fields_.ok()) return *std::move(error_);
    for (std::string& name : fields_.Unknown()) request_.ignored.push_back(std::move(name));
    return std::move(request_);
  }

  ApiResult<ChatRequest> ReadChatAlone(const RequestDefaults& defaults) {
    if (defaults.generate.thinking_budget == 0) request_.chat.thinking = Thinking::kOff;
    ReadChat();
    request_.chat.opens_answer = fields_.Bool("add_generation_prompt").value_or(true);
    if (!fields_.ok()) return *std::move(error_);
    return std::move(request_.chat);
  }

 private:
  void ReadModel(const RequestDefaults& defaults) {
    const auto model = fields_.Text("model");
    if (!model.has_value() || model->empty() || defaults.IsModel(*model)) return;
    error_ = ApiError{.status = 404,
                      .message = fmt::format("model: there is no \"{}\"; this server has \"{}\"",
                                             *model, defaults.model_id),
                      .code = "model_not_found",
                      .param = "model"};
  }

  // A string, or parts that are texts. Absent: empty.
  std::string ReadContent(const Json* content, const std::string& path) {
    if (content == nullptr) return "";
    if (content->is_string()) return content->get<std::string>();
    if (!content->is_array()) {
      Fail(path, "expected a string or an array of parts", "invalid_type");
      return "";
    }
    std::string text;
    for (size_t i = 0; i < content->size() && !error_.has_value(); ++i) {
      const std::string part_path = fmt::format("{}[{}]", path, i);
      const Json& part = (*content)[i];
      if (!part.is_object()) {
        Fail(part_path, "expected an object", "invalid_type");
        break;
      }
      JsonFields fields(part, part_path, &error_);
      const auto type = fields.Text("type");
      const auto part_text = fields.Text(type == "refusal" ? "refusal" : "text");
      const bool is_text = type == "text" || type == "input_text" || type == "refusal";
      if (!is_text || !part_text.has_value()) {
        Fail(part_path, "expected a part of type text; images, audio and files are not supported",
             "unsupported");
        break;
      }
      text += *part_text;
    }
    return text;
  }

  void ReadCalls(const Json& calls, const std::string& path, ChatMessage* message) {
    for (size_t i = 0; i < calls.size() && !error_.has_value(); ++i) {
      const std::string call_path = fmt::format("{}[{}]", path, i);
      if (!calls[i].is_object()) return Fail(call_path, "expected an object", "invalid_type");
      JsonFields fields(calls[i], call_path, &error_);
      const Json* function = fields.Object("function");
      if (function == nullptr) return Fail(call_path, "expected a function", "missing_field");
      JsonFields inner(*function, call_path + ".function", &error_);
      ToolCall& call = message->tool_calls.emplace_back();
      call.id = fields.Text("id").value_or("");
      call.name = inner.Text("name").value_or("");
      call.arguments = inner.Text("arguments").value_or("{}");
      if (call.arguments.empty()) call.arguments = "{}";
    }
  }

  void ReadMessage(const Json& json, const std::string& path) {
    if (!json.is_object()) return Fail(path, "expected an object", "invalid_type");
    JsonFields fields(json, path, &error_);
    ChatMessage message;
    const auto role = fields.Text("role");
    if (!role.has_value()) return Fail(path + ".role", "expected a role", "missing_field");
    message.role = *role;
    message.content = ReadContent(fields.Any("content"), path + ".content");
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
    request_.chat.messages.push_back(std::move(message));
  }

  void ReadChat() {
    const Json* messages = fields_.Array("messages");
    if (messages == nullptr) {
      return Fail("messages", "expected an array of messages", "missing_field");
    }
    if (messages->size() > kMostMessages) {
      return Fail("messages",
                  fmt::format("expected at most {}, found {}", kMostMessages, messages->size()));
    }
    for (size_t i = 0; i < messages->size() && !error_.has_value(); ++i) {
      ReadMessage((*messages)[i], fmt::format("messages[{}]", i));
    }
    ReadTools();
    ReadFormat();
    ReadThinking();
  }

  void ReadTools() {
    if (const Json* tools = fields_.Array("tools")) {
      for (size_t i = 0; i < tools->size() && !error_.has_value(); ++i) {
        ReadTool((*tools)[i], fmt::format("tools[{}]", i));
      }
    }
    if (const auto parallel = fields_.Bool("parallel_tool_calls")) {
      request_.chat.parallel_tool_calls = *parallel;
    }
    const Json* choice = fields_.Any("tool_choice");
    if (choice == nullptr) return;
    if (choice->is_string()) {
      request_.chat.tool_choice = choice->get<std::string>();
      return;
    }
    if (!choice->is_object()) {
      return Fail("tool_choice", "expected a string or an object", "invalid_type");
    }
    JsonFields fields(*choice, "tool_choice", &error_);
    const Json* function = fields.Object("function");
    if (function == nullptr) {
      return Fail("tool_choice.function", "expected the function to call", "missing_field");
    }
    JsonFields inner(*function, "tool_choice.function", &error_);
    request_.chat.tool_choice = inner.Text("name").value_or("");
  }

  void ReadTool(const Json& json, const std::string& path) {
    if (!json.is_object()) return Fail(path, "expected an object", "invalid_type");
    JsonFields fields(json, path, &error_);
    const auto type = fields.Text("type");
    const Json* function = fields.Object("function");
    if (type.value_or("function") != "function" || function == nullptr) {
      return Fail(path, "expected a tool of type function", "unsupported");
    }
    JsonFields inner(*function, path + ".function", &error_);
    Tool& tool = request_.chat.tools.emplace_back();
    tool.name = inner.Text("name").value_or("");
    tool.description = inner.Text("description").value_or("");
    if (const Json* parameters = inner.Object("parameters")) tool.parameters = parameters->dump();
  }

  void ReadFormat() {
    TextFormat format = ReadTextFormat(&fields_, &error_);
    ChatRequest& chat = request_.chat;
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

  // Of completions, which have no template that would say where their text begins.
  void ReadTextGrammar() {
    TextFormat format = ReadTextFormat(&fields_, &error_);
    if (format.kind == TextFormat::Kind::kFree) return;
    if (format.kind == TextFormat::Kind::kGrammar) {
      request_.sampling.grammar = std::move(format.text);
      return;
    }
    const bool is_object = format.kind == TextFormat::Kind::kJsonObject;
    const Result<std::string> grammar =
        GrammarOfSchema(is_object ? R"({"type": "object"})" : format.text);
    if (!grammar.ok()) return Fail(format.field, grammar.status().message());
    request_.sampling.grammar = *grammar;
  }

  void ReadThinking() {
    if (const auto effort = fields_.Text("reasoning_effort")) {
      constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium", "high", "xhigh"};
      if (std::ranges::find(kEfforts, *effort) == std::end(kEfforts)) {
        Fail("reasoning_effort",
             fmt::format("expected none, minimal, low, medium, high or xhigh, found \"{}\"",
                         *effort));
      }
      if (*effort == "none") request_.chat.thinking = Thinking::kOff;
    }
    for (const char* name :
         {"thinking_token_budget", "thinking_budget_tokens", "reasoning_budget_tokens"}) {
      const auto budget = fields_.Integer(name, -1, kMostTokens);
      if (!budget.has_value()) continue;
      request_.generate.thinking_budget = static_cast<int>(*budget);
      // Templates that can leave the thought out do it better than closing it by force.
      if (*budget == 0) request_.chat.thinking = Thinking::kOff;
    }
    if (const Json* kwargs = fields_.Object("chat_template_kwargs")) {
      JsonFields fields(*kwargs, "chat_template_kwargs", &error_);
      if (const auto enabled = fields.Bool("enable_thinking"); enabled == false) {
        request_.chat.thinking = Thinking::kOff;
      }
      for (std::string& name : fields.Unknown()) request_.ignored.push_back(std::move(name));
    }
    if (fields_.Bool("continue_final_message") == true) {
      Fail("continue_final_message", "true is not supported", "unsupported");
    }
  }

  void ReadChatOutput() {
    const bool wants = fields_.Bool("logprobs").value_or(false);
    const auto top = fields_.Integer("top_logprobs", 0, kMostLogprobs);
    if (top.has_value() && !wants) {
      return Fail("top_logprobs", "expected logprobs to be true with it");
    }
    if (wants) request_.logprobs = static_cast<int>(top.value_or(0));
  }

  void ReadTextOutput() {
    if (const auto top = fields_.Integer("logprobs", 0, kMostLogprobs)) {
      request_.logprobs = static_cast<int>(*top);
    }
    if (fields_.Bool("echo") == true) Fail("echo", "true is not supported", "unsupported");
    ReadTextGrammar();
  }

  void ReadTokens(const Json& json, const std::string& path) {
    std::vector<Token>& tokens = request_.prompts.emplace_back();
    for (const Json& token : json) {
      const bool fits =
          token.is_number_integer() && token >= 0 && token <= std::numeric_limits<Token>::max();
      if (!fits) return Fail(path, "expected tokens, integers from 0 on", "invalid_type");
      tokens.push_back(token.get<Token>());
    }
  }

  // A text, texts, tokens, or several lists of tokens.
  void ReadPrompts() {
    const Json* prompt = fields_.Any("prompt");
    if (prompt == nullptr) return Fail("prompt", "expected a text", "missing_field");
    if (prompt->is_string()) return request_.texts.push_back(prompt->get<std::string>());
    if (!prompt->is_array() || prompt->empty()) {
      return Fail("prompt", "expected a string, or an array of strings or tokens", "invalid_type");
    }
    if (prompt->front().is_number()) return ReadTokens(*prompt, "prompt");
    if (prompt->size() > kMostPrompts) {
      return Fail("prompt",
                  fmt::format("expected at most {}, found {}", kMostPrompts, prompt->size()));
    }
    const bool are_texts = prompt->front().is_string();
    for (size_t i = 0; i < prompt->size(); ++i) {
      const Json& one = (*prompt)[i];
      const std::string path = fmt::format("prompt[{}]", i);
      if (are_texts && one.is_string()) {
        request_.texts.push_back(one.get<std::string>());
      } else if (!are_texts && one.is_array()) {
        ReadTokens(one, path);
      } else {
        return Fail(path, "expected strings or lists of tokens, all of one kind", "invalid_type");
      }
    }
  }

  void ReadSampling() {
    SamplingOptions& sampling = request_.sampling;
    const auto number = [&](const char* name, double min, double max, float* to) {
      if (const auto value = fields_.Number(name, {min, max})) *to = static_cast<float>(*value);
    };
    number("temperature", 0, 2, &sampling.temperature);
    number("top_p", 0, 1, &sampling.top_p);
    number("min_p", 0, 1, &sampling.min_p);
    number("presence_penalty", -2, 2, &sampling.presence_penalty);
    number("frequency_penalty", -2, 2, &sampling.frequency_penalty);
    number("repetition_penalty", 0.01, 100, &sampling.repeat_penalty);
    number("repeat_penalty", 0.01, 100, &sampling.repeat_penalty);
    if (const auto k = fields_.Integer("top_k", -1, kMostTokens)) {
      sampling.top_k = std::max(0, static_cast<int>(*k));
    }
    constexpr auto kLargest = std::numeric_limits<int64_t>::max();
    if (const auto seed = fields_.Integer("seed", -kLargest, kLargest)) {
      sampling.seed = static_cast<uint64_t>(*seed);
    }
    if (const Json* biases = fields_.Object("logit_bias")) {
      JsonFields fields(*biases, "logit_bias", &error_);
      for (const auto& [name, value] : biases->items()) {
        const bool is_token = !name.empty() && name.size() < 10 &&
                              name.find_first_not_of("0123456789") == std::string::npos;
        if (!is_token) fields.Fail(name, "expected the number of a token");
        const auto bias = fields.Number(name, {-100, 100});
        if (bias.has_value()) sampling.logit_bias[std::stoi(name)] = static_cast<float>(*bias);
      }
    }
  }

  void ReadLengths() {
    for (const char* name : {"max_tokens", "max_completion_tokens"}) {
      if (const auto most = fields_.Integer(name, 1, kMostTokens)) {
        request_.generate.max_tokens = static_cast<int>(*most);
      }
    }
    // llama-server's name for the same limit.
    if (const auto most = fields_.Integer("n_predict", -1, kMostTokens)) {
      if (*most == 0) return Fail("n_predict", "expected -1, no limit, or 1 and more");
      request_.generate.max_tokens = static_cast<int>(*most);
    }
    if (const auto n = fields_.Integer("n", 1, kMostChoices)) {
      request_.num_choices = static_cast<int>(*n);
    }
    if (fields_.Bool("ignore_eos") == true) {
      request_.generate.on_end = GenerateOptions::OnEnd::kIgnore;
    }
  }

  void ReadStops() {
    const Json* stop = fields_.Any("stop");
    if (stop == nullptr) return;
    request_.generate.stops.clear();
    if (stop->is_string()) return request_.generate.stops.push_back(stop->get<std::string>());
    if (!stop->is_array()) return Fail("stop", "expected a string or an array", "invalid_type");
    if (stop->size() > kMostStops) {
      return Fail("stop", fmt::format("expected at most {}, found {}", kMostStops, stop->size()));
    }
    for (const Json& text : *stop) {
      if (!text.is_string()) return Fail("stop", "expected strings", "invalid_type");
      request_.generate.stops.push_back(text.get<std::string>());
    }
  }

  void ReadStream() {
    request_.streams = fields_.Bool("stream").value_or(false);
    request_.tells_progress = fields_.Bool("return_progress").value_or(false) && request_.streams;
    const Json* options = fields_.Object("stream_options");
    if (options == nullptr) return;
    JsonFields fields(*options, "stream_options", &error_);
    request_.includes_usage = fields.Bool("include_usage").value_or(false);
    for (std::string& name : fields.Unknown()) request_.ignored.push_back(std::move(name));
  }

  void ReadCache() {
    request_.caches_prompt = fields_.Bool("cache_prompt").value_or(true);
    request_.cache_salt = fields_.Text("cache_salt").value_or("");
    if (request_.cache_salt.size() > kMostSaltBytes) {
      Fail("cache_salt", fmt::format("expected at most {} bytes, found {}", kMostSaltBytes,
                                     request_.cache_salt.size()));
    }
  }

  void ReadSession() {
    const auto id = fields_.Text("session_id");
    if (!id.has_value()) return;
    if (!store::IsSessionId(*id)) {
      return Fail("session_id", "expected 1 to 64 letters, digits, '-', '_' and ':'");
    }
    request_.session_id = *id;
  }

  // The `ebb` object: what a request may ask of the cache.
  void ReadOwn(const RequestDefaults& defaults) {
    if (const auto priority = fields_.Integer("priority", -2, 2)) {
      request_.priority = static_cast<int>(*priority);
    }
    const Json* own = fields_.Object("ebb");
    if (own == nullptr) return;
    JsonFields fields(*own, "ebb", &error_);
    request_.tells_hash = fields.Bool("logits_hash").value_or(false);
    if (const auto deadline = fields.Integer("deadline_ms", 1, int64_t{1} << 40)) {
      request_.deadline_seconds = static_cast<double>(*deadline) / 1000;
    }
    PolicySpec& policy = request_.session.policy;
    SettingGiven given;
    const auto parse = [&](const char* name, const Status& status) {
      if (!status.ok()) fields.Fail(name, status.message());
    };
    if (const auto text = fields.Text("policy")) {
      policy.params.clear();
      given.policy = true;
      parse("policy", ParsePolicy(*text, &policy));
    }
    if (const auto text = fields.Text("budget")) {
      Result<Budget> budget = ParseBudget(*text);
      parse("budget", budget.status());
      if (budget.ok()) policy.budget = *budget;
    }
    ReadTiers(defaults, &fields);
    const auto lossless = fields.Bool("lossless");
    if (lossless == true && !request_.session.lossless.has_value()) {
      LosslessOptions& asked_for = request_.session.lossless.emplace();
      // Nothing else is to be had on a device.
      if (defaults.engine.device.kind == DeviceKind::kBackend) {
        asked_for.verify = LosslessOptions::Verify::kFast;
      }
      if (!given.policy) policy = DefaultDraft(std::move(policy));
    } else if (lossless == false) {
      request_.session.lossless.reset();
    }
    for (std::string& name : fields.Unknown()) request_.ignored.push_back(std::move(name));
  }

  void ReadTiers(const RequestDefaults& defaults, JsonFields* fields) {
    std::optional<TierSpec>& tiers = request_.session.policy.tiers;
    const auto set = [&](const char* name, Status (*parse)(std::string_view, TierSpec*)) {
      const auto text = fields->Text(name);
      if (!text.has_value()) return;
      if (!defaults.engine.tiers.has_value()) {
        return fields->Fail(name, "the server was started without tiers", "unsupported");
      }
      TierSpec spec = tiers.value_or(*defaults.engine.tiers);
      if (const Status status = parse(*text, &spec); !status.ok()) {
        return fields->Fail(name, status.message());
      }
      if (spec.t0_cap_bytes > 0 || spec.evict_beyond_caps) {
        return fields->Fail(name, "expected a share: caps are the server's");
      }
      tiers = spec;
    };
    set("t0", ParseT0);
    set("t2", ParseT2);
    set("evict", ParseEvict);
  }

  void RefuseOthers() {
    for (const std::string_view name : kRefused) {
      const Json* value = fields_.Any(std::string(name));
      // Their own defaults ask for nothing.
      if (value == nullptr || *value == 0 || *value == false || *value == "" || value->empty()) {
        continue;
      }
      if (name == "best_of" && *value == 1) continue;
      fields_.Fail(std::string(name), "not supported", "unsupported");
    }
  }

  void Fail(const std::string& path, const std::string& message,
            std::string code = "invalid_value") {
    fields_.Fail(path, message, std::move(code));
  }

  const Endpoint endpoint_;
  std::optional<ApiError> error_;
  JsonFields fields_;
  CompletionRequest request_;
};

// The prompts of a request as tokens, and how its answers are read.
ApiResult<std::vector<Turn>> TurnsOf(const Model& model, CompletionRequest* request) {
  std::vector<Turn> turns;
  if (request->endpoint == Endpoint::kChat) {
    const std::vector<ChatMessage> messages = std::exchange(request->chat.messages, {});
    const Conversation talk = {.request = std::move(request->chat)};
    Result<Turn> turn = BeginTurn(model, talk, messages);
    if (!turn.ok()) return ErrorFrom(turn.status());
    turns.push_back(*std::move(turn));
    return turns;
  }
  const Conversation talk = {.kind = Conversation::Kind::kText};
  for (const std::string& text : request->texts) {
    Result<Turn> turn = BeginTextTurn(model, talk, text, {});
    if (!turn.ok()) return ErrorFrom(turn.status());
    turns.push_back(*std::move(turn));
  }
  for (std::vector<Token>& tokens : request->prompts) {
    if (tokens.empty()) return Invalid("prompt: expected tokens, found none", "prompt");
    const int vocab_size = model.shape().vocab_size;
    const auto unknown = std::ranges::find_if(tokens, [&](Token t) { return t >= vocab_size; });
    if (unknown != tokens.end()) {
      return Invalid(
          fmt::format("prompt: expected tokens below {}, found {}", vocab_size, *unknown),
          "prompt");
    }
    turns.push_back({.tokens = std::move(tokens)});
  }
  return turns;
}

}  // namespace

ApiResult<CompletionRequest> ReadRequest(Endpoint endpoint, const Json& body,
                                         const RequestDefaults& defaults) {
  return RequestReader(endpoint, body).Read(defaults);
}

ApiResult<ChatRequest> ReadChatRequest(const Json& body, const RequestDefaults& defaults) {
  return RequestReader(Endpoint::kChat, body).ReadChatAlone(defaults);
}

size_t NextCall(std::span<const ChatMessage> messages, std::span<const ChatMessage> more) {
  constexpr std::string_view kOurs = "call";
  size_t count = 0, next = 0;
  for (const auto& some : {messages, more}) {
    for (const ChatMessage& message : some) {
      count += message.tool_calls.size();
      for (const ToolCall& call : message.tool_calls) {
        if (!call.id.starts_with(kOurs)) continue;
        uint32_t number = 0;
        const char* const end = call.id.data() + call.id.size();
        const auto [stop, error] = std::from_chars(call.id.data() + kOurs.size(), end, number);
        if (error == std::errc() && stop == end) next = std::max<size_t>(next, size_t{number} + 1);
      }
    }
  }
  return std::max(count, next);
}

bool MayCall(const ChatRequest& chat) { return !chat.tools.empty() && chat.tool_choice != "none"; }

ApiResult<Prepared> Prepare(const Model& model, CompletionRequest request) {
  const size_t num_calls = NextCall(request.chat.messages);
  const bool may_call = MayCall(request.chat);
  ApiResult<std::vector<Turn>> turns = TurnsOf(model, &request);
  if (auto* error = std::get_if<ApiError>(&turns)) return std::move(*error);
  ApiResult<Prepared> prepared = PrepareTurns(
      model, request, std::move(std::get<std::vector<Turn>>(turns)), /*num_kept=*/0, num_calls);
  if (auto* made = std::get_if<Prepared>(&prepared)) made->may_call = may_call;
  return prepared;
}

ApiResult<Prepared> PrepareTurns(const Model& model, const CompletionRequest& request,
                                 std::vector<Turn> turns, size_t num_kept, size_t num_calls) {
  Prepared prepared = {.num_calls = num_calls, .may_call = MayCall(request.chat)};
  const int context =
      request.session.context > 0 ? request.session.context : model.shape().trained_context;
  for (Turn& turn : turns) {
    const bool is_endless = request.session.past_context == PastContext::kReRotate;
    const size_t size = num_kept + turn.tokens.size();
    if (!is_endless && size >= static_cast<size_t>(context)) {
      return Invalid(
          fmt::format("the prompt has {} tokens, which exceeds the available context size "
                      "of {} tokens, one of them for the answer",
                      size, context),
          request.endpoint == Endpoint::kChat ? "messages" : "prompt", "context_length_exceeded");
    }
    for (int choice = 0; choice < request.num_choices; ++choice) {
      SamplingOptions sampling = request.sampling;
      sampling.seed += static_cast<uint64_t>(choice);
      Result<std::unique_ptr<Sampler>> sampler = SamplerFor(turn, model, std::move(sampling));
      if (!sampler.ok()) return ErrorFrom(sampler.status());
      Job& job = prepared.jobs.emplace_back();
      job.priority = request.priority.value_or(0);
      job.deadline_seconds = request.deadline_seconds;
      job.prompt = turn.tokens;
      job.session = request.session;
      if (request.caches_prompt) job.prefix_key = PrefixKey(request.cache_salt, request.session);
      job.sampler = *std::move(sampler);
      job.generate = OptionsFor(turn, request.generate);
      job.logprobs = request.logprobs;
      job.logprob_source = request.logprob_source;
      job.tells_tokens = request.tells_tokens;
      job.tells_progress = request.tells_progress;
    }
    prepared.prompt = std::make_shared<const ChatPrompt>(std::move(turn.prompt));
  }
  return prepared;
}

}  // namespace ebb::server
