#include "src/server/api/openai/sampling_fields.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "src/server/api/base/llama_samplers.h"

namespace ebb::server {
namespace {

class SamplingReader {
 public:
  SamplingReader(const Json& body, JsonFields* fields, CompletionRequest* request)
      : body_(body), fields_(fields), request_(request) {}

  void Read() {
    SamplingOptions& sampling = request_->sampling;
    ReadNumber("temperature", 0, 2, &sampling.temperature);
    ReadNumber("top_p", 0, 1, &sampling.top_p);
    ReadNumber("min_p", 0, 1, &sampling.min_p);
    ReadNumber("presence_penalty", -2, 2, &sampling.presence_penalty);
    ReadNumber("frequency_penalty", -2, 2, &sampling.frequency_penalty);
    ReadNumber("dynatemp_range", 0, kMost, &sampling.dynatemp_range);
    ReadNumber("dynatemp_exponent", 0, kMost, &sampling.dynatemp_exponent);
    ReadNumber("typical_p", 0, kMost, &sampling.typical_p);
    // Above 1 it is off, as in llama-server.
    sampling.typical_p = std::min(sampling.typical_p, 1.0F);
    ReadNumber("top_n_sigma", -kMost, kMost, &sampling.top_n_sigma);
    ReadNumber("xtc_probability", 0, 1, &sampling.xtc_probability);
    ReadNumber("xtc_threshold", 0, 1, &sampling.xtc_threshold);
    ReadDry();
    ReadInteger("mirostat", 0, 2, &sampling.mirostat);
    ReadNumber("mirostat_tau", 0, kMost, &sampling.mirostat_tau);
    ReadNumber("mirostat_eta", 0, kMost, &sampling.mirostat_eta);
    for (const std::string& name : ReadLlamaSamplers(fields_, &sampling)) {
      request_->ignored.push_back("samplers." + name);
    }
    ReadRepeatPenalty();
    sampling.presence_scope = SamplingOptions::PresenceScope::kAnswer;
    constexpr int kAll = std::numeric_limits<int>::max();
    const auto last_n = fields_->Integer("repeat_last_n", -1, kAll).value_or(-1);
    sampling.repeat_last_n = last_n < 0 ? kAll : static_cast<int>(last_n);
    if (const auto k = fields_->Integer("top_k", -1, std::numeric_limits<int>::max())) {
      sampling.top_k = std::max(0, static_cast<int>(*k));
    }
    ReadSeed();
    if (const Json* biases = fields_->Any("logit_bias")) ReadBiases(*biases);
  }

 private:
  static constexpr double kMost = 1e6;

  void ReadNumber(const char* name, double min, double max, float* to) {
    if (const auto value = fields_->Number(name, {min, max})) *to = static_cast<float>(*value);
  }
  void ReadInteger(const char* name, int min, int max, int* to) {
    if (const auto value = fields_->Integer(name, min, max)) *to = static_cast<int>(*value);
  }

  void ReadDry() {
    SamplingOptions& sampling = request_->sampling;
    constexpr int kMostTokens = 10'000'000;
    ReadNumber("dry_multiplier", 0, kMost, &sampling.dry_multiplier);
    // A base below 1 takes llama-server's default, as there.
    const auto base = fields_->Number("dry_base", {-kMost, kMost});
    if (base.has_value() && *base >= 1) sampling.dry_base = static_cast<float>(*base);
    ReadInteger("dry_allowed_length", 0, kMostTokens, &sampling.dry_allowed_length);
    ReadInteger("dry_penalty_last_n", -1, kMostTokens, &sampling.dry_penalty_last_n);
    const Json* const breakers = fields_->Array("dry_sequence_breakers");
    if (breakers == nullptr) return;
    sampling.dry_sequence_breakers.clear();
    for (const Json& one : *breakers) {
      if (!one.is_string()) {
        return Fail("dry_sequence_breakers", "expected texts", "invalid_type");
      }
      sampling.dry_sequence_breakers.push_back(one.get<std::string>());
    }
  }

  // Reads the repeat penalty. Clients may send both names, with one value.
  void ReadRepeatPenalty() {
    constexpr Bounds kBounds = {0.01, 100};
    const auto vllms = fields_->Number("repetition_penalty", kBounds);
    const auto llamas = fields_->Number("repeat_penalty", kBounds);
    if (vllms.has_value() && llamas.has_value() && *vllms != *llamas) {
      Fail("repeat_penalty",
           "expected this or repetition_penalty, found both, with different values");
    }
    const auto penalty = llamas.has_value() ? llamas : vllms;
    if (penalty.has_value()) request_->sampling.repeat_penalty = static_cast<float>(*penalty);
  }

  // Reads the seed. -1 and null draw a random seed, which the answer repeats as ebb.seed.
  void ReadSeed() {
    const Json* seed = fields_->Any("seed");
    const bool is_null = body_.contains("seed") && body_["seed"].is_null();
    if (seed == nullptr && !is_null) return;
    const bool is_unsigned = seed != nullptr && seed->is_number_unsigned();
    if (is_null || (!is_unsigned && *seed == -1)) {
      // Keeps the seed below 2^53, so that JSON readers that use doubles do not change it.
      constexpr uint64_t kMask = (uint64_t{1} << 53) - 1;
      std::random_device random;
      request_->drawn_seed = ((uint64_t{random()} << 32) | random()) & kMask;
      request_->sampling.seed = *request_->drawn_seed;
    } else if (is_unsigned) {
      request_->sampling.seed = seed->get<uint64_t>();
    } else if (seed->is_number() && *seed < 0) {
      Fail("seed",
           fmt::format("expected 0 to 18446744073709551615, or -1 for a random one, found {}",
                       seed->dump()),
           "out_of_range");
    } else {
      const auto value = fields_->Integer("seed", 0, std::numeric_limits<int64_t>::max());
      request_->sampling.seed = static_cast<uint64_t>(value.value_or(0));
    }
  }

  // Reads OpenAI's object by token, or llama-server's list of pairs. Both may name a text instead
  // of a token, which biases all tokens of the text, and false means -100.
  void ReadBiases(const Json& biases) {
    if (!biases.is_object() && !biases.is_array()) {
      return Fail("logit_bias", "expected an object or an array of pairs", "invalid_type");
    }
    for (const auto& [name, value] : biases.items()) {
      if (!fields_->ok()) return;
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
    constexpr double kMostBias = 100;
    const bool is_number = value.is_number();
    const double bias = is_number ? value.get<double>() : -kMostBias;
    if (!is_number && value != false) {
      return Fail(path, "expected a number or false", "invalid_type");
    }
    if (!(bias >= -kMostBias && bias <= kMostBias)) {
      return Fail(path, fmt::format("expected -100 to 100, found {}", bias), "out_of_range");
    }
    std::map<Token, float>& biases = request_->sampling.logit_bias;
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
      request_->text_biases.push_back({text, static_cast<float>(bias)});
    }
  }

  void Fail(const std::string& path, const std::string& message,
            std::string code = "invalid_value") {
    fields_->Fail(path, message, std::move(code));
  }

  const Json& body_;
  JsonFields* const fields_;
  CompletionRequest* const request_;
};

}  // namespace

void ReadSamplingFields(const Json& body, JsonFields* fields, CompletionRequest* request) {
  SamplingReader(body, fields, request).Read();
}

}  // namespace ebb::server
