#include "src/server/api/request.h"
#include "ebb/generate.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <random>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "ebb/engine.h"
#include "ebb/grammar.h"
#include "ebb/tiers.h"
#include "src/server/api/continued_answer.h"
#include "src/server/api/converted_chat.h"
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
constexpr std::string_view kRefused[] = {"prompt_logprobs", "suffix", "functions",
                                         "function_call",   "audio",  "web_search_options",
                                         "best_of"};
constexpr std::string_view kPartTypes[] = {"text", "input_text", "refusal"};

// Reads one request; the first error stands.
class RequestReader {
 public:
  RequestReader(Endpoint endpoint, const Json& body)
      : endpoint_(endpoint), body_(body), fields_(body, "", &error_) {
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
      if (!request_.chat.opens_answer) {
        Fail("add_generation_prompt",
             "expected true, or a last message of the assistant's to go on with, found false",
             "unsupported");
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

  ApiResult<CompletionRequest> ReadChatAlone(const RequestDefaults& defaults) {
    if (defaults.generate.thinking_budget == 0) request_.chat.thinking = Thinking::kOff;
    ReadChat();
    if (!fields_.ok()) return *std::move(error_);
    return std::move(request_);
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
      const Json* arguments = inner.Any("arguments");
      call.arguments = ArgumentsText(arguments == nullptr ? Json() : *arguments);
    }
  }

  void ReadMessage(const Json& json, const std::string& path) {
    if (!json.is_object()) return Fail(path, "expected an object", "invalid_type");
    JsonFields fields(json, path, &error_);
    ChatMessage message;
    const auto role = fields.Text("role");
    if (!role.has_value()) return Fail(path + ".role", "expected a role", "missing_field");
    message.role = *role;
    // A picture in a tool's result is in every later request, so that refusing it would end the
    // conversation for good.
    std::vector<std::string>* ignored = message.role == "tool" ? &request_.ignored : nullptr;
    message.content =
        ContentText(fields.Any("content"), path + ".content", {kPartTypes, ignored}, &error_);
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
                  fmt::format("expected at most {}, found {}", kMostMessages, messages->size()),
                  "request_too_large");
    }
    for (size_t i = 0; i < messages->size() && !error_.has_value(); ++i) {
      ReadMessage((*messages)[i], fmt::format("messages[{}]", i));
    }
    ReadTools();
    if (fields_.ok()) request_.tool_names = RenameTools(&request_.chat);
    ReadFormat();
    ReadThinking();
    ReadBegunAnswer();
  }

  // Takes the last message away if it is an assistant's that is to be continued: llama-server and
  // Anthropic do so by default, vLLM where continue_final_message says so.
  void ReadBegunAnswer() {
    std::vector<ChatMessage>& messages = request_.chat.messages;
    const auto asked = fields_.Bool("continue_final_message");
    const auto opens = fields_.Bool("add_generation_prompt");
    if (!fields_.ok()) return;
    request_.chat.opens_answer = opens.value_or(true);
    const auto is_assistants = [&](size_t from_end) {
      return messages.size() >= from_end &&
             messages[messages.size() - from_end].role == "assistant";
    };
    const bool can_go_on = is_assistants(1) && messages.back().tool_calls.empty();
    request_.must_continue = asked == true;
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
    request_.begun = std::move(messages.back());
    messages.pop_back();
    request_.chat.opens_answer = true;
    if (request_.begun->content.empty() && request_.begun->reasoning_content.empty()) {
      request_.begun.reset();
    }
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
    if (fields.Text("type").value_or("function") != "function") {
      // The tool is no function, or one that a server carries out: the other tools stay usable.
      return request_.ignored.push_back(path);
    }
    const Json* function = fields.Object("function");
    if (function == nullptr) return Fail(path, "expected a function", "missing_field");
    JsonFields inner(*function, path + ".function", &error_);
    Tool tool = {.name = inner.Text("name").value_or("")};
    const bool is_there =
        std::ranges::find(request_.chat.tools, tool.name, &Tool::name) != request_.chat.tools.end();
    if (tool.name.empty() || is_there) return request_.ignored.push_back(path);
    tool.description = inner.Text("description").value_or("");
    const Json* parameters = inner.Any("parameters");
    if (parameters != nullptr && parameters->is_object()) {
      tool.parameters = parameters->dump();
    } else if (parameters != nullptr) {
      request_.ignored.push_back(inner.PathOf("parameters"));
    }
    request_.chat.tools.push_back(std::move(tool));
    request_.tool_paths.push_back(path);
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

  // Reads the grammar of a completion, which has no template that would say where its text begins.
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

  std::vector<Token> TokensOf(const Json& json, const std::string& path) {
    std::vector<Token> tokens;
    for (const Json& token : json) {
      const bool fits =
          token.is_number_integer() && token >= 0 && token <= std::numeric_limits<Token>::max();
      if (!fits) {
        Fail(path, "expected tokens, integers from 0 on", "invalid_type");
        break;
      }
      tokens.push_back(token.get<Token>());
    }
    return tokens;
  }

  void ReadTokens(const Json& json, const std::string& path) {
    request_.prompts.push_back(TokensOf(json, path));
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
    ReadSeed();
    if (const Json* biases = fields_.Any("logit_bias")) ReadBiases(*biases);
  }

  // -1 and null draw a random seed, which the answer repeats as ebb.seed.
  void ReadSeed() {
    const Json* seed = fields_.Any("seed");
    const bool is_null = body_.contains("seed") && body_["seed"].is_null();
    if (seed == nullptr && !is_null) return;
    const bool is_unsigned = seed != nullptr && seed->is_number_unsigned();
    if (is_null || (!is_unsigned && *seed == -1)) {
      // Readers of JSON that use doubles keep integers up to 2^53.
      constexpr uint64_t kMask = (uint64_t{1} << 53) - 1;
      std::random_device random;
      request_.drawn_seed = ((uint64_t{random()} << 32) | random()) & kMask;
      request_.sampling.seed = *request_.drawn_seed;
    } else if (is_unsigned) {
      request_.sampling.seed = seed->get<uint64_t>();
    } else {
      constexpr auto kLargest = std::numeric_limits<int64_t>::max();
      const auto value = fields_.Integer("seed", -kLargest, kLargest);
      request_.sampling.seed = static_cast<uint64_t>(value.value_or(0));
    }
  }

  // Reads OpenAI's object by token, or llama-server's list of pairs. Both may name a text instead
  // of a token, which biases all tokens of the text, and false means -100.
  void ReadBiases(const Json& biases) {
    if (!biases.is_object() && !biases.is_array()) {
      return Fail("logit_bias", "expected an object or an array of pairs", "invalid_type");
    }
    for (const auto& [name, value] : biases.items()) {
      if (!fields_.ok()) return;
      if (biases.is_object()) {
        ReadBias(name, value, "logit_bias." + name);
        continue;
      }
      const std::string path = fmt::format("logit_bias[{}]", name);
      if (!value.is_array() || value.size() != 2) {
        return Fail(path, "expected a token and its bias", "invalid_type");
      }
      ReadBias(value[0], value[1], path);
    }
  }

  void ReadBias(const Json& of, const Json& value, const std::string& path) {
    constexpr double kMost = 100;
    const bool is_number = value.is_number();
    const double bias = is_number ? value.get<double>() : -kMost;
    if (!is_number && value != false) {
      return Fail(path, "expected a number or false", "invalid_type");
    }
    if (!(bias >= -kMost && bias <= kMost)) {
      return Fail(path, fmt::format("expected -100 to 100, found {}", bias), "out_of_range");
    }
    std::map<Token, float>& biases = request_.sampling.logit_bias;
    if (of.is_number_integer()) {
      const bool fits = of >= 0 && of <= std::numeric_limits<Token>::max();
      if (!fits) return Fail(path, fmt::format("expected a token, found {}", of.dump()));
      biases[of.get<Token>()] = static_cast<float>(bias);
      return;
    }
    if (!of.is_string() || of == "") {
      return Fail(path, "expected a token or a text", "invalid_type");
    }
    const auto& text = of.get_ref<const std::string&>();
    Token token = 0;
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, token);
    if (error == std::errc::result_out_of_range && stop == end) {
      return Fail(path, fmt::format("expected a token, found {}", text));
    }
    if (error == std::errc() && stop == end && token >= 0) {
      biases[token] = static_cast<float>(bias);
    } else {
      request_.text_biases.push_back({text, static_cast<float>(bias)});
    }
  }

  void ReadLengths() {
    // The last is llama-server's name. -1: no limit.
    for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"}) {
      const auto most = fields_.Integer(name, -1, kMostTokens);
      if (most == 0) {
        return Fail(name, fmt::format("expected 1 to {}, or -1 for no limit, found 0", kMostTokens),
                    "out_of_range");
      }
      if (most.has_value()) request_.generate.max_tokens = static_cast<int>(*most);
    }
    if (const auto least = fields_.Integer("min_tokens", 0, kMostTokens)) {
      request_.generate.min_tokens = static_cast<int>(*least);
      const int most = request_.generate.max_tokens;
      if (most >= 0 && *least > most) {
        Fail("min_tokens",
             fmt::format("expected at most the {} of max_tokens, found {}", most, *least),
             "out_of_range");
      }
    }
    if (const auto n = fields_.Integer("n", 1, kMostChoices)) {
      request_.num_choices = static_cast<int>(*n);
    }
    if (fields_.Bool("ignore_eos") == true) {
      request_.generate.on_end = GenerateOptions::OnEnd::kIgnore;
    }
  }

  void ReadStops() {
    if (const Json* tokens = fields_.Array("stop_token_ids")) {
      request_.generate.stop_tokens = TokensOf(*tokens, "stop_token_ids");
    }
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
    ExplicitOptions given;
    const auto parse = [&](const char* name, const Status& status) {
      if (!status.ok()) fields.Fail(name, status.Text());
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
        return fields->Fail(name, status.Text());
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
  const Json& body_;
  std::optional<ApiError> error_;
  JsonFields fields_;
  CompletionRequest request_;
};

// The prompts of a request as tokens, and how its answers are read.
ApiResult<std::vector<Turn>> TurnsOf(const Model& model, CompletionRequest* request) {
  std::vector<Turn> turns;
  const int context = ContextBound(model, *request);
  if (request->endpoint == Endpoint::kChat) {
    Result<Turn> turn = BeginChatTurn(model, std::move(request->chat), request->begun, context);
    if (!turn.ok()) return PromptError(turn.status(), request->endpoint);
    turns.push_back(*std::move(turn));
    return turns;
  }
  const Conversation talk = {.kind = Conversation::Kind::kText};
  for (const std::string& text : request->texts) {
    Result<Turn> turn = BeginTextTurn(model, talk, text, {}, context);
    if (!turn.ok()) return PromptError(turn.status(), request->endpoint);
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

int ContextBound(const Model& model, const CompletionRequest& request) {
  if (request.session.past_context == PastContext::kReRotate) return 0;
  return request.session.context > 0 ? request.session.context : model.shape().trained_context;
}

ApiError PromptError(const Status& status, Endpoint endpoint) {
  if (status.code() != StatusCode::kContextFull) return ErrorFrom(status);
  return Invalid(status.message(), endpoint == Endpoint::kChat ? "messages" : "prompt",
                 "context_length_exceeded");
}

ApiResult<CompletionRequest> ReadRequest(Endpoint endpoint, const Json& body,
                                         const RequestDefaults& defaults) {
  return RequestReader(endpoint, body).Read(defaults);
}

ApiResult<CompletionRequest> ReadChatRequest(const Json& body, const RequestDefaults& defaults) {
  return RequestReader(Endpoint::kChat, body).ReadChatAlone(defaults);
}

void LeaveOutTools(const Model& model, CompletionRequest* request) {
  ChatRequest& chat = request->chat;
  const bool may_go = chat.tool_choice == "auto" || chat.tool_choice == "none";
  if (chat.tools.empty() || !may_go || model.TakesTools()) return;
  chat.tools.clear();
  request->ignored.emplace_back("tools");
}

Result<Turn> BeginChatTurn(const Model& model, ChatRequest chat,
                           const std::optional<ChatMessage>& begun, int context) {
  if (begun.has_value()) return BeginContinuedTurn(model, std::move(chat), *begun, context);
  const std::vector<ChatMessage> messages = std::exchange(chat.messages, {});
  return BeginTurn(model, {.request = std::move(chat)}, messages, context);
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
  EBB_ASSIGN_OR_RETURN(std::vector<Turn> turns, TurnsOf(model, &request));
  EBB_ASSIGN_OR_RETURN(Prepared prepared, PrepareTurns(model, request, std::move(turns),
                                                       /*num_kept=*/0, num_calls));
  prepared.may_call = may_call;
  return prepared;
}

ApiResult<Prepared> PrepareTurns(const Model& model, const CompletionRequest& request,
                                 std::vector<Turn> turns, size_t num_kept, size_t num_calls) {
  Prepared prepared = {.num_calls = num_calls, .may_call = MayCall(request.chat)};
  const int vocab_size = model.shape().vocab_size;
  for (const Token token : request.generate.stop_tokens) {
    if (token < vocab_size) continue;
    return Invalid(
        fmt::format("stop_token_ids: expected tokens below {}, found {}", vocab_size, token),
        "stop_token_ids", "out_of_range");
  }
  SamplingOptions biased = request.sampling;
  for (const TextBias& of : request.text_biases) {
    const auto tokens = model.Tokenize(of.text, Model::AddBos::kNo, Model::Specials::kAsText);
    if (!tokens.ok()) return ErrorFrom(tokens.status());
    for (const Token token : *tokens) biased.logit_bias[token] = of.bias;
  }
  const int context = ContextBound(model, request);
  for (Turn& turn : turns) {
    const size_t size = num_kept + turn.tokens.size();
    if (context > 0 && size >= static_cast<size_t>(context)) {
      const Status status = ContextFull(
          fmt::format("the prompt has {} tokens, which exceeds the available context size "
                      "of {} tokens, one of them for the answer",
                      size, context));
      return PromptError(status, request.endpoint);
    }
    for (int choice = 0; choice < request.num_choices; ++choice) {
      SamplingOptions sampling = biased;
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
