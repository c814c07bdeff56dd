#include "src/server/api/llama/llama_request.h"

#include <algorithm>
#include <limits>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "src/server/api/json_fields.h"
#include "src/server/api/llama/llama_fields.h"
#include "src/server/api/llama/llama_samplers.h"

namespace ebb::server {
namespace {

constexpr size_t kMostLlamaPrompts = 16;
constexpr int kMostLlamaChoices = 8;
constexpr int kMostProbs = 100;
constexpr int kMostNumber = std::numeric_limits<int>::max();
constexpr double kMostTemperature = 1e6;
constexpr float kBanned = -std::numeric_limits<float>::infinity();

// Reads one request; the first error stands.
class LlamaReader {
 public:
  LlamaReader(LlamaEndpoint endpoint, Json body)
      : endpoint_(endpoint), body_(std::move(body)), fields_(body_, "", &error_) {}

  ApiResult<std::pair<Json, LlamaFields>> Read() {
    if (endpoint_ == LlamaEndpoint::kInfill) {
      ReadInfillPrompt();
    } else {
      ReadLlamaPrompts();
    }
    ReadLimits();
    ReadLlamaSampling();
    ReadBiases();
    ReadLlamaStops();
    ReadTold();
    RefuseAdapters();
    if (error_.has_value()) return *std::move(error_);
    for (const std::string& name : taken_) body_.erase(name);
    // ReadRequest() requires a prompt; ApplyLlamaFields() replaces it.
    body_["prompt"] = "";
    if (stops_.has_value()) body_["stop"] = *std::move(stops_);
    if (num_choices_.has_value()) body_["n"] = *num_choices_;
    return std::pair(std::move(body_), std::move(read_));
  }

 private:
  // Marks the field as read here, so that ReadRequest() does not see it.
  const std::string& Own(const std::string& name) {
    taken_.push_back(name);
    return taken_.back();
  }
  std::optional<int> OwnInteger(const std::string& name, int min, int max = kMostNumber) {
    const auto value = fields_.Integer(Own(name), min, max);
    return value.has_value() ? std::optional(static_cast<int>(*value)) : std::nullopt;
  }
  // Returns the first of these fields that is present; reads all of them.
  std::optional<int> FirstInteger(std::initializer_list<const char*> names, int min,
                                  int max = kMostNumber) {
    std::optional<int> first;
    for (const char* name : names) {
      const auto value = OwnInteger(name, min, max);
      if (!first.has_value()) first = value;
    }
    return first;
  }
  bool OwnBool(const char* name) { return fields_.Bool(Own(name)).value_or(false); }

  void ReadInfillPrompt() {
    read_.infill = ReadInfill(&fields_);
    for (const char* name : {"input_prefix", "input_suffix", "input_extra"}) Own(name);
  }

  // Reads one prompt, which may be one of several.
  std::optional<MixedPrompt> ReadPrompt(const Json& json, const std::string& path) {
    if (json.is_string()) return MixedPrompt{json.get<std::string>()};
    if (json.is_object()) return ReadPromptObject(json, path);
    MixedPrompt prompt;
    if (json.is_array() && !json.empty()) {
      for (const Json& part : json) {
        if (part.is_string()) {
          prompt.emplace_back(part.get<std::string>());
        } else if (IsToken(part)) {
          prompt.emplace_back(part.get<Token>());
        } else {
          prompt.clear();
          break;
        }
      }
    }
    if (!prompt.empty()) return prompt;
    fields_.Fail(path,
                 "expected a string, an array of tokens and strings, or an object with "
                 "prompt_string",
                 "invalid_type");
    return std::nullopt;
  }

  static bool IsToken(const Json& json) {
    return json.is_number_integer() && json >= 0 && json <= std::numeric_limits<Token>::max();
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
  void ReadLlamaPrompts() {
    const Json* prompt = fields_.Any("prompt");
    if (prompt == nullptr) return fields_.Fail("prompt", "expected a prompt", "missing_field");
    const bool is_one = !prompt->is_array() || prompt->empty() ||
                        std::ranges::any_of(*prompt, [](const Json& p) { return p.is_number(); });
    if (is_one) {
      if (auto read = ReadPrompt(*prompt, "prompt")) read_.prompts.push_back(*std::move(read));
      return;
    }
    if (prompt->size() > kMostLlamaPrompts) {
      return fields_.Fail("prompt", fmt::format("expected at most {} prompts, found {}",
                                                kMostLlamaPrompts, prompt->size()));
    }
    for (size_t i = 0; i < prompt->size() && fields_.ok(); ++i) {
      auto read = ReadPrompt((*prompt)[i], fmt::format("prompt[{}]", i));
      if (read.has_value()) read_.prompts.push_back(*std::move(read));
    }
  }

  void ReadLimits() {
    read_.max_tokens = FirstInteger({"n_predict", "max_completion_tokens", "max_tokens"}, -1);
    num_choices_ = FirstInteger({"n_cmpl", "n"}, 1, kMostLlamaChoices);
    if (const auto ms = fields_.Integer(Own("t_max_predict_ms"), -1, int64_t{1} << 40)) {
      read_.line_seconds = std::max(0.0, static_cast<double>(*ms) / 1000);
    }
  }

  void ReadLlamaSampling() {
    if (const auto value =
            fields_.Number(Own("temperature"), {-kMostTemperature, kMostTemperature})) {
      read_.temperature = static_cast<float>(std::max(0.0, *value));  // below 0: greedy, too
    }
    read_.repeat_last_n = OwnInteger("repeat_last_n", -1);
    if (read_.repeat_last_n == -1) read_.repeat_last_n = kMostNumber;
    read_.min_keep = OwnInteger("min_keep", 0);
    read_.samplers = ReadLlamaSamplers(&fields_);
    Own("samplers");
    for (const std::string& name : RefuseLlamaSamplers(&fields_)) Own(name);
  }

  std::optional<float> ReadBias(const Json& json) {
    if (json == false) return kBanned;
    constexpr double kMostBias = 100;
    if (json.is_number() && json >= -kMostBias && json <= kMostBias) return json.get<float>();
    fields_.Fail("logit_bias",
                 fmt::format("expected numbers from -100 to 100, or false, found {}", json.dump()));
    return std::nullopt;
  }

  // Reads [[token or text, bias], ...] or {"token or text": bias, ...}.
  void ReadBiases() {
    const Json* biases = fields_.Any(Own("logit_bias"));
    if (biases == nullptr) return;
    if (!biases->is_object() && !biases->is_array()) {
      return fields_.Fail("logit_bias", "expected an array of pairs, or an object", "invalid_type");
    }
    for (const auto& [name, value] : biases->items()) {
      const bool is_pair =
          value.is_array() && value.size() == 2 && (value[0].is_string() || IsToken(value[0]));
      if (biases->is_array() && !is_pair) {
        return fields_.Fail("logit_bias", "expected pairs of a token, or a text, and a bias");
      }
      const auto bias = ReadBias(biases->is_array() ? value[1] : value);
      if (!bias.has_value()) return;
      LlamaBias& added = read_.biases.emplace_back();
      added.bias = *bias;
      if (biases->is_array() && IsToken(value[0])) {
        added.of = value[0].get<Token>();
      } else {
        const std::string text = biases->is_array() ? value[0].get<std::string>() : name;
        const bool is_number = biases->is_object() && !text.empty() && text.size() < 10 &&
                               text.find_first_not_of("0123456789") == std::string::npos;
        if (is_number) {
          added.of = static_cast<Token>(std::stoi(text));
        } else {
          added.of = text;
        }
      }
    }
  }

  // Leaves out empty stop strings, as llama-server does.
  void ReadLlamaStops() {
    const Json* stop = fields_.Any("stop");
    if (stop == nullptr || !(stop->is_array() || *stop == "")) return;
    stops_ = Json::array();
    if (!stop->is_array()) return;
    for (const Json& one : *stop) {
      if (one != "") stops_->push_back(one);
    }
  }

  void ReadTold() {
    LlamaAnswer& answer = read_.answer;
    answer.returns_tokens = OwnBool("return_tokens");
    answer.post_sampling_probs = OwnBool("post_sampling_probs");
    answer.timings_per_token = OwnBool("timings_per_token");
    answer.returns_progress = OwnBool("return_progress");
    read_.num_probs = FirstInteger({"n_probs", "logprobs"}, 0, kMostProbs);
    const Json* names = fields_.Array(Own("response_fields"));
    if (names == nullptr) return;
    for (const Json& name : *names) {
      if (!name.is_string())
        return fields_.Fail("response_fields", "expected strings", "invalid_type");
      answer.response_fields.push_back(name.get<std::string>());
    }
  }

  void RefuseAdapters() {
    const Json* adapters = fields_.Any(Own("lora"));
    if (adapters != nullptr && !adapters->empty()) {
      fields_.Fail("lora", "adapters are not supported", "unsupported");
    }
    if (OwnBool("grammar_lazy")) fields_.Fail("grammar_lazy", "not supported", "unsupported");
  }

  const LlamaEndpoint endpoint_;
  Json body_;
  std::optional<ApiError> error_;
  JsonFields fields_;
  std::vector<std::string> taken_;
  std::optional<Json> stops_;
  std::optional<int> num_choices_;
  LlamaFields read_;
};

}  // namespace

ApiResult<LlamaRequest> ReadLlamaRequest(LlamaEndpoint endpoint, Json body) {
  auto read = LlamaReader(endpoint, std::move(body)).Read();
  if (!read.ok()) return std::move(read).error();
  auto& [rest, fields] = *read;
  LlamaRequest request = {.body = std::move(rest),
                          .answer = std::make_shared<LlamaAnswer>(fields.answer),
                          .apply = {},
                          .note = {}};
  const auto shared = std::make_shared<const LlamaFields>(std::move(fields));
  request.apply = [shared, answer = request.answer](const Model& model, CompletionRequest* to) {
    return ApplyLlamaFields(model, *shared, to, answer.get());
  };
  request.note = [answer = request.answer](const Model& model, const std::vector<Job>& jobs) {
    const std::vector<std::string>& names = answer->response_fields;
    if (!names.empty() && std::ranges::find(names, "prompt") == names.end()) return;
    for (const Job& job : jobs) {
      std::string& text = answer->prompts.emplace_back();
      for (const Token token : job.prompt) {
        text += model.TokenText(token, Model::ControlTokens::kShow);
      }
    }
  };
  return request;
}

}  // namespace ebb::server
