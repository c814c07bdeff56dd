#include "src/server/api/openai/request_reader.h"

#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "ebb/grammar.h"
#include "ebb/setting_fields.h"
#include "ebb/tiers.h"
#include "src/server/api/base/content.h"
#include "src/server/api/base/llama_samplers.h"
#include "src/server/api/openai/sampling_fields.h"
#include "src/server/api/openai/text_format.h"

namespace ebb::server {
namespace {

constexpr size_t kMostStops = 256;
constexpr int kMostChoices = 8;
constexpr int kMostTokens = std::numeric_limits<int>::max();
constexpr size_t kMostSaltBytes = 256;

// RefusedField is a field of OpenAI, vLLM, SGLang, Ollama, Transformers or text-generation-webui
// that would constrain or change an answer in a way that ebb does not support. `neutral` is the
// number, besides 0, that asks for nothing.
struct RefusedField {
  std::string_view name;
  double neutral = 0;
};
constexpr RefusedField kRefused[] = {{"prompt_logprobs"},
                                     {"suffix"},
                                     {"audio"},
                                     {"web_search_options"},
                                     {"best_of", 1},
                                     {"allowed_token_ids"},
                                     {"bad_words"},
                                     {"bad_words_ids"},
                                     {"banned_tokens"},
                                     {"banned_strings"},
                                     {"custom_token_bans"},
                                     {"structural_tag"},
                                     {"logits_processors"},
                                     {"custom_logit_processor"},
                                     {"format"},
                                     {"use_beam_search"},
                                     {"num_beams", 1},
                                     {"beam_width", 1},
                                     {"length_penalty", 1},
                                     {"penalty_alpha"},
                                     {"no_repeat_ngram_size"},
                                     {"min_length"},
                                     {"max_length"},
                                     {"truncate_prompt_tokens", -1},
                                     {"lora"},
                                     {"negative_prompt"},
                                     {"guidance_scale", 1},
                                     {"top_a"},
                                     {"tfs", 1},
                                     {"tfs_z", 1},
                                     {"typical", 1},
                                     {"epsilon_cutoff"},
                                     {"eta_cutoff"},
                                     {"smoothing_factor"},
                                     {"dynamic_temperature"},
                                     {"encoder_repetition_penalty", 1}};

}  // namespace

RequestReader::RequestReader(Endpoint endpoint, const Json& body, const RequestDefaults& defaults)
    : defaults_(defaults), body_(body), own_(body, "", &error_), fields_(body, "", &error_) {
  request_.endpoint = endpoint;
  if (endpoint == Endpoint::kText) request_.prompt_field = "prompt";
  request_.sampling = defaults.sampling;
  request_.session = defaults.session;
  request_.generate = defaults.generate;
  if (defaults.generate.thinking_budget == 0) request_.chat.thinking = Thinking::kOff;
}

const std::string& RequestReader::Own(const std::string& name) {
  fields_.Hide(name);
  return name;
}

void RequestReader::ReadModel() {
  const auto model = fields_.Text("model");
  if (!model.has_value() || model->empty() || defaults_.IsModel(*model)) return;
  error_ = ApiError{.status = 404,
                    .message = fmt::format("model: there is no \"{}\"; this server has \"{}\" "
                                           "(ebb serve --any-model accepts any name)",
                                           *model, defaults_.model_id),
                    .code = "model_not_found",
                    .param = "model"};
}

std::vector<Token> RequestReader::TokensOf(const Json& json, const std::string& path) {
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

void RequestReader::ReadChatOutput() {
  // The template determines how an answer begins.
  if (!request_.chat.opens_answer) {
    Fail("add_generation_prompt",
         "expected true, or a last message of the assistant's to go on with, found false",
         "unsupported");
  }
  const bool wants = fields_.Bool("logprobs").value_or(false);
  const auto top = fields_.Integer("top_logprobs", 0, kMostLogprobs);
  if (top.has_value() && !wants) {
    return Fail("top_logprobs", "expected logprobs to be true with it");
  }
  if (wants) request_.logprobs = static_cast<int>(top.value_or(0));
}

void RequestReader::ReadPrediction() {
  const Json* const prediction = fields_.Object("prediction");
  if (prediction == nullptr) return;
  JsonFields fields(*prediction, "prediction", &error_);
  const auto type = fields.Text("type");
  if (type.value_or("content") != "content") {
    return fields.Fail("type", fmt::format("expected content, found \"{}\"", *type));
  }
  const Json* const content = fields.Any("content");
  if (content == nullptr) return fields.Fail("content", "expected a text", "missing_field");
  request_.prediction = ResultText(content, fields.PathOf("content"), &request_.ignored);
}

void RequestReader::ReadTextGrammar() {
  if (fields_.Bool("echo") == true) Fail("echo", "true is not supported", "unsupported");
  TextFormat format = ReadTextFormat(&fields_, &error_, {}, &request_.ignored);
  request_.format_field = format.field;
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

void RequestReader::ReadShared() {
  ReadSamplingFields(body_, &fields_, &request_);
  ReadLengths();
  ReadStops();
  ReadStream();
  ReadCache();
  ReadSession();
  ReadOwn();
  RefuseOthers();
}

ApiResult<CompletionRequest> RequestReader::Take(ReadScope scope) {
  if (error_.has_value()) return *std::move(error_);
  if (scope == ReadScope::kAnswer) {
    for (std::string& name : fields_.Unknown()) request_.ignored.push_back(std::move(name));
  }
  return std::move(request_);
}

void RequestReader::ReadLengths() {
  // Later names win: OpenAI's and llama-server's override those of others. -1: no limit.
  for (const char* name : {"max_new_tokens", "max_output_tokens", "num_predict", "max_tokens",
                           "max_completion_tokens", "n_predict"}) {
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
  const bool ignores_end = fields_.Bool("ignore_eos").value_or(false);
  if (fields_.Bool("ban_eos_token").value_or(false) || ignores_end) {
    request_.generate.on_end = GenerateOptions::OnEnd::kIgnore;
  }
}

void RequestReader::ReadStops() {
  if (const Json* tokens = fields_.Array("stop_token_ids")) {
    request_.generate.stop_tokens = TokensOf(*tokens, "stop_token_ids");
  }
  bool is_first = true;
  for (const char* name :
       {"stop", "stop_sequence", "stop_sequences", "stopping_strings", "custom_stopping_strings"}) {
    const Json* stop = fields_.Any(name);
    if (stop == nullptr) continue;
    // The request's stops replace the server's.
    if (std::exchange(is_first, false)) request_.generate.stops.clear();
    AddStops(name, *stop);
  }
}

void RequestReader::AddStops(const char* name, const Json& stop) {
  std::vector<std::string>& stops = request_.generate.stops;
  const auto add = [&](const Json& text) {
    if (text != "") return stops.push_back(text.get<std::string>());
    if (!leaves_out_empty_stops_) Fail(name, "expected texts that are not empty");
  };
  if (stop.is_string()) return add(stop);
  if (!stop.is_array()) return Fail(name, "expected a string or an array", "invalid_type");
  if (stop.size() > kMostStops) {
    return Fail(name, fmt::format("expected at most {}, found {}", kMostStops, stop.size()));
  }
  for (const Json& text : stop) {
    if (!text.is_string()) return Fail(name, "expected strings", "invalid_type");
    add(text);
  }
}

void RequestReader::ReadStream() {
  request_.streams = fields_.Bool("stream").value_or(false);
  request_.reports_progress = fields_.Bool("return_progress").value_or(false) && request_.streams;
  const Json* options = fields_.Object("stream_options");
  if (options == nullptr) return;
  JsonFields fields(*options, "stream_options", &error_);
  request_.includes_usage = fields.Bool("include_usage").value_or(false);
  for (std::string& name : fields.Unknown()) request_.ignored.push_back(std::move(name));
}

void RequestReader::ReadCache() {
  request_.caches_prompt = fields_.Bool("cache_prompt").value_or(true);
  request_.cache_salt = fields_.Text("cache_salt").value_or("");
  if (request_.cache_salt.size() > kMostSaltBytes) {
    Fail("cache_salt", fmt::format("expected at most {} bytes, found {}", kMostSaltBytes,
                                   request_.cache_salt.size()));
  }
}

// Reads the hint of a session; some clients send a number.
void RequestReader::ReadSession() {
  const Json* hint = fields_.Any("session_id");
  if (hint == nullptr) return;
  if (!hint->is_string() && !hint->is_number()) {
    return Fail("session_id", "expected a string or a number", "invalid_type");
  }
  request_.session_hint = hint->is_string() ? hint->get<std::string>() : Dump(*hint);
}

// Reads the object `ebb`, the options for the cache.
void RequestReader::ReadOwn() {
  if (const auto priority = fields_.Integer("priority", -2, 2)) {
    request_.priority = static_cast<int>(*priority);
  }
  const Json* own = fields_.Object("ebb");
  if (own == nullptr) return;
  JsonFields fields(*own, "ebb", &error_);
  request_.session_id = fields.Text("session").value_or("");
  request_.reports_hash = fields.Bool("logits_hash").value_or(false);
  request_.reports_memory = fields.Bool("memory").value_or(false);
  if (request_.reports_memory) request_.reports_tokens = true;
  if (const auto deadline = fields.Integer("deadline_ms", 1, int64_t{1} << 40)) {
    request_.deadline_seconds = static_cast<double>(*deadline) / 1000;
  }
  PolicySpec& policy = request_.session.policy;
  const auto parse = [&](const char* name, const Status& status) {
    if (!status.ok()) fields.Fail(name, status.Text());
  };
  if (const auto text = fields.Text("budget")) {
    request_.policy_field = "ebb.budget";
    Result<Budget> budget = ParseBudget(*text);
    parse("budget", budget.status());
    if (budget.ok()) policy.budget = *budget;
  }
  const auto text = fields.Text("policy");
  if (text.has_value()) {
    request_.policy_field = "ebb.policy";
    policy.params.clear();
    parse("policy", ParsePolicy(*text, &policy));
  }
  ReadTiers(&fields);
  const auto lossless = fields.Bool("lossless");
  if (lossless == true && !request_.session.lossless.has_value()) {
    LosslessOptions& asked_for = request_.session.lossless.emplace();
    // A device supports no other verification.
    if (defaults_.engine.device.kind == DeviceKind::kBackend) {
      asked_for.verify = LosslessOptions::Verify::kFast;
    }
    if (!text.has_value()) policy = DefaultDraft(std::move(policy));
  } else if (lossless == false) {
    request_.session.lossless.reset();
  }
  for (std::string& name : fields.Unknown()) request_.ignored.push_back(std::move(name));
}

void RequestReader::ReadTiers(JsonFields* fields) {
  std::optional<TierShares>& tiers = request_.session.policy.tiers;
  const std::optional<EngineTiers>& of_server = defaults_.engine.tiers;
  const auto set = [&](const char* name, Status (*parse)(std::string_view, TierSetting*)) {
    const auto text = fields->Text(name);
    if (!text.has_value()) return;
    if (!of_server.has_value()) {
      return fields->Fail(name, "the server was started without tiers", "unsupported");
    }
    TierSetting asked = {.shares = tiers.value_or(TierShares())};
    if (const Status status = parse(*text, &asked); !status.ok()) {
      return fields->Fail(name, status.Text());
    }
    const auto& [engine, shares] = asked;
    if (engine.t0_cap_bytes > 0 || shares.evict_beyond_caps) {
      return fields->Fail(name, "expected a share: caps are the server's");
    }
    if (engine.t2_type.has_value() && engine.t2_type != of_server->t2_type) {
      return fields->Fail(name, "the server was started without a T2 of this format");
    }
    tiers = shares;
  };
  set("t0", ParseT0);
  set("t2", ParseT2);
  set("evict", ParseEvict);
  if (!tiers.has_value() || !fields->Text("t0").has_value()) return;
  const Status status = CheckT0Share(*tiers);
  if (!status.ok()) fields->Fail("t0", status.message());
}

void RequestReader::RefuseOthers() {
  for (const auto& [name, neutral] : kRefused) {
    const Json* value = fields_.Any(std::string(name));
    // Defaults of other servers ask for nothing, so they are accepted.
    if (value == nullptr || *value == 0 || *value == false || *value == "" || value->empty()) {
      continue;
    }
    if (value->is_number() && *value == neutral) continue;
    fields_.Fail(std::string(name), "not supported", "unsupported");
  }
  RefuseLlamaSamplers(&fields_);
}

void RequestReader::Fail(const std::string& path, const std::string& message, std::string code) {
  fields_.Fail(path, message, std::move(code));
}

}  // namespace ebb::server
