#include "src/server/api/llama/llama_request.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "src/server/api/openai/request_reader.h"

namespace ebb::server {
namespace {

constexpr size_t kMostLlamaPrompts = 16;
constexpr int kMostLlamaChoices = 8;
constexpr int kMostProbs = 100;
constexpr int kMostNumber = std::numeric_limits<int>::max();
constexpr double kMostTemperature = 1e6;
constexpr float kBanned = -std::numeric_limits<float>::infinity();

class LlamaReader final : public RequestReader {
 public:
  LlamaReader(const Json& body, const RequestDefaults& defaults)
      : RequestReader(Endpoint::kText, body, defaults) {
    request_.llama = std::make_shared<LlamaAnswer>();
    leaves_out_empty_stops_ = true;
  }

  ApiResult<CompletionRequest> Read(LlamaEndpoint endpoint) {
    if (endpoint == LlamaEndpoint::kInfill) {
      request_.infill = ReadInfill(&own_);
      for (const char* name : {"input_prefix", "input_suffix", "input_extra"}) Own(name);
    } else {
      ReadPrompts();
    }
    Own("prompt");
    // Reads these fields here first: the shared reader has OpenAI's limits for them.
    const auto most_tokens = OwnFirst({"n_predict", "max_completion_tokens", "max_tokens"}, -1);
    const auto num_choices = OwnFirst({"n_cmpl", "n"}, 1, kMostLlamaChoices);
    const auto line_ms = own_.Integer(Own("t_max_predict_ms"), -1, int64_t{1} << 40);
    const auto temperature = own_.Number(Own("temperature"), {-kMostTemperature, kMostTemperature});
    const auto repeat_last_n = OwnInteger("repeat_last_n", -1);
    const auto min_keep = OwnInteger("min_keep", 0);
    ReadBiases();
    ReadAnswerOptions();
    RefuseAdapters();

    ReadModel();
    ReadTextGrammar();
    ReadShared();
    if (most_tokens.has_value()) request_.generate.max_tokens = *most_tokens;
    if (num_choices.has_value()) request_.num_choices = *num_choices;
    const double line_seconds = static_cast<double>(line_ms.value_or(0)) / 1000;
    request_.generate.line_seconds = std::max(0.0, line_seconds);
    SamplingOptions& sampling = request_.sampling;
    // Like 0, a temperature below 0 selects the likeliest token.
    if (temperature.has_value())
      sampling.temperature = static_cast<float>(std::max(0.0, *temperature));
    sampling.presence_scope = SamplingOptions::PresenceScope::kWindow;
    sampling.repeat_last_n =
        repeat_last_n == -1 ? kMostNumber : repeat_last_n.value_or(SamplingOptions().repeat_last_n);
    if (min_keep.has_value()) sampling.min_keep = *min_keep;
    request_.reports_tokens = true;
    request_.reports_progress = request_.streams;
    return Take();
  }

 private:
  std::optional<int> OwnInteger(const std::string& name, int min, int max = kMostNumber) {
    const auto value = own_.Integer(Own(name), min, max);
    return value.has_value() ? std::optional(static_cast<int>(*value)) : std::nullopt;
  }
  // Returns the first of these fields that is present; reads all of them.
  std::optional<int> OwnFirst(std::initializer_list<const char*> names, int min,
                              int max = kMostNumber) {
    std::optional<int> first;
    for (const char* name : names) {
      const auto value = OwnInteger(name, min, max);
      if (!first.has_value()) first = value;
    }
    return first;
  }
  bool OwnBool(const char* name) { return own_.Bool(Own(name)).value_or(false); }

  static bool IsToken(const Json& json) {
    return json.is_number_integer() && json >= 0 && json <= std::numeric_limits<Token>::max();
  }

  // Reads one prompt, alone or out of an array of prompts.
  std::optional<MixedPrompt> ReadPrompt(const Json& json, const std::string& path) {
    if (json.is_string()) return MixedPrompt{json.get<std::string>()};
    if (json.is_object()) return ReadPromptObject(json, path);
    MixedPrompt prompt;
    bool is_prompt = json.is_array() && !json.empty();
    for (size_t i = 0; is_prompt && i < json.size(); ++i) {
      const Json& part = json[i];
      if (part.is_string()) {
        prompt.emplace_back(part.get<std::string>());
      } else if (IsToken(part)) {
        const bool is_behind_token =
            !prompt.empty() && std::holds_alternative<std::vector<Token>>(prompt.back());
        if (!is_behind_token) prompt.emplace_back(std::vector<Token>());
        std::get<std::vector<Token>>(prompt.back()).push_back(part.get<Token>());
      } else {
        is_prompt = false;
      }
    }
    if (is_prompt) return prompt;
    Fail(path, "expected a string, an array of tokens and strings, or an object with prompt_string",
         "invalid_type");
    return std::nullopt;
  }

  std::optional<MixedPrompt> ReadPromptObject(const Json& json, const std::string& path) {
    JsonFields fields(json, path, &error_);
    const auto text = fields.Text("prompt_string");
    const Json* media = fields.Any("multimodal_data");
    if (media != nullptr && !media->empty()) {
      fields.Fail("multimodal_data", "images and audio are not supported", "unsupported");
    }
    if (!text.has_value()) fields.Fail("prompt_string", "expected a text", "missing_field");
    if (!fields.ok()) return std::nullopt;
    return MixedPrompt{*text};
  }

  // Reads one prompt, or an array of prompts. An array with a number in it is one prompt.
  void ReadPrompts() {
    const Json* prompt = own_.Any("prompt");
    if (prompt == nullptr) return Fail("prompt", "expected a prompt", "missing_field");
    const bool is_one = !prompt->is_array() || prompt->empty() ||
                        std::ranges::any_of(*prompt, [](const Json& p) { return p.is_number(); });
    if (is_one) {
      if (auto read = ReadPrompt(*prompt, "prompt")) request_.prompts.push_back(*std::move(read));
      return;
    }
    if (prompt->size() > kMostLlamaPrompts) {
      return Fail("prompt", fmt::format("expected at most {} prompts, found {}", kMostLlamaPrompts,
                                        prompt->size()));
    }
    for (size_t i = 0; i < prompt->size() && own_.ok(); ++i) {
      auto read = ReadPrompt((*prompt)[i], fmt::format("prompt[{}]", i));
      if (read.has_value()) request_.prompts.push_back(*std::move(read));
    }
  }

  std::optional<float> ReadBias(const Json& json) {
    if (json == false) return kBanned;
    constexpr double kMostBias = 100;
    if (json.is_number() && json >= -kMostBias && json <= kMostBias) return json.get<float>();
    Fail("logit_bias",
         fmt::format("expected numbers from -100 to 100, or false, found {}", json.dump()));
    return std::nullopt;
  }

  // Reads [[token or text, bias], ...] or {"token or text": bias, ...}.
  void ReadBiases() {
    const Json* biases = own_.Any(Own("logit_bias"));
    if (biases == nullptr) return;
    if (!biases->is_object() && !biases->is_array()) {
      return Fail("logit_bias", "expected an array of pairs, or an object", "invalid_type");
    }
    for (const auto& [name, value] : biases->items()) {
      const bool is_pair =
          value.is_array() && value.size() == 2 && (value[0].is_string() || IsToken(value[0]));
      if (biases->is_array() && !is_pair) {
        return Fail("logit_bias", "expected pairs of a token, or a text, and a bias");
      }
      const auto bias = ReadBias(biases->is_array() ? value[1] : value);
      if (!bias.has_value()) return;
      const bool is_list = biases->is_array();
      if (is_list && IsToken(value[0])) {
        request_.sampling.logit_bias[value[0].get<Token>()] = *bias;
        continue;
      }
      const std::string text = is_list ? value[0].get<std::string>() : name;
      const bool is_number = !is_list && !text.empty() && text.size() < 10 &&
                             text.find_first_not_of("0123456789") == std::string::npos;
      if (is_number) {
        request_.sampling.logit_bias[static_cast<Token>(std::stoi(text))] = *bias;
      } else {
        request_.text_biases.push_back({text, *bias});
      }
    }
  }

  void ReadAnswerOptions() {
    LlamaAnswer& answer = *request_.llama;
    answer.returns_tokens = OwnBool("return_tokens");
    answer.post_sampling_probs = OwnBool("post_sampling_probs");
    answer.timings_per_token = OwnBool("timings_per_token");
    answer.returns_progress = OwnBool("return_progress");
    if (answer.post_sampling_probs) request_.logprob_source = Job::LogprobSource::kSampler;
    const int most = OwnFirst({"n_probs", "logprobs"}, 0, kMostProbs).value_or(0);
    if (most > 0) request_.logprobs = most;
    const Json* names = own_.Array(Own("response_fields"));
    if (names == nullptr) return;
    for (const Json& name : *names) {
      if (!name.is_string()) return Fail("response_fields", "expected strings", "invalid_type");
      answer.response_fields.push_back(name.get<std::string>());
    }
  }

  void RefuseAdapters() {
    const Json* adapters = own_.Any(Own("lora"));
    if (adapters != nullptr && !adapters->empty()) {
      Fail("lora", "adapters are not supported", "unsupported");
    }
    if (OwnBool("grammar_lazy")) Fail("grammar_lazy", "not supported", "unsupported");
  }
};

}  // namespace

ApiResult<CompletionRequest> ReadLlama(LlamaEndpoint endpoint, const Json& body,
                                       const RequestDefaults& defaults) {
  return LlamaReader(body, defaults).Read(endpoint);
}

}  // namespace ebb::server
