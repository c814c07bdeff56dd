#include "src/server/api/openai/llama_settings.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "src/server/api/base/llama_samplers.h"

namespace ebb::server {
namespace {

Json SamplingJson(const SamplingOptions& sampling) {
  return {{"seed", sampling.seed},
          {"temperature", sampling.temperature},
          {"dynatemp_range", sampling.dynatemp_range},
          {"dynatemp_exponent", sampling.dynatemp_exponent},
          {"top_k", sampling.top_k},
          {"top_p", sampling.top_p},
          {"min_p", sampling.min_p},
          {"top_n_sigma", sampling.top_n_sigma},
          {"xtc_probability", sampling.xtc_probability},
          {"xtc_threshold", sampling.xtc_threshold},
          {"typical_p", sampling.typical_p},
          {"repeat_last_n", sampling.repeat_last_n},
          {"repeat_penalty", sampling.repeat_penalty},
          {"presence_penalty", sampling.presence_penalty},
          {"frequency_penalty", sampling.frequency_penalty},
          {"dry_multiplier", sampling.dry_multiplier},
          {"dry_base", sampling.dry_base},
          {"dry_allowed_length", sampling.dry_allowed_length},
          {"dry_penalty_last_n", sampling.dry_penalty_last_n},
          {"dry_sequence_breakers", sampling.dry_sequence_breakers},
          {"mirostat", sampling.mirostat},
          {"mirostat_tau", sampling.mirostat_tau},
          {"mirostat_eta", sampling.mirostat_eta},
          {"adaptive_target", -1.0},
          {"adaptive_decay", 0.9},
          {"min_keep", sampling.min_keep},
          {"samplers", LlamaSamplerNames(sampling)}};
}

Json LengthJson(const GenerateOptions& generate) {
  return {{"max_tokens", generate.max_tokens},
          {"n_predict", generate.max_tokens},
          {"n_keep", 0},
          {"ignore_eos", generate.on_end == GenerateOptions::OnEnd::kIgnore},
          {"stop", generate.stops}};
}

// Returns the biases. A banned token has the bias null, since JSON has no infinity. `ignore_eos`
// bans all tokens that end an answer.
Json BiasesJson(const Model& model, const CompletionRequest& request) {
  Json biases = Json::array();
  for (const auto& [token, bias] : request.sampling.logit_bias) {
    biases.push_back({{"bias", std::isinf(bias) ? Json() : Json(bias)}, {"token", token}});
  }
  if (request.generate.on_end != GenerateOptions::OnEnd::kIgnore) return biases;
  for (Token token = 0; token < model.shape().vocab_size; ++token) {
    if (model.EndsGeneration(token)) biases.push_back({{"bias", nullptr}, {"token", token}});
  }
  return biases;
}

// Returns `generation_settings` of an answer; its seed is that of the first choice.
Json LlamaSettings(const Model& model, const CompletionRequest& request) {
  const LlamaAnswer& answer = *request.llama;
  Json settings = SamplingJson(request.sampling);
  settings.update(LengthJson(request.generate));
  settings["stream"] = request.streams;
  settings["logit_bias"] = BiasesJson(model, request);
  settings["n_probs"] = request.logprobs.value_or(0);
  settings["grammar"] = request.sampling.grammar;
  settings["timings_per_token"] = answer.timings_per_token;
  settings["post_sampling_probs"] = answer.post_sampling_probs;
  settings["lora"] = Json::array();
  return settings;
}

}  // namespace

Json LlamaDefaults(const RequestDefaults& defaults) {
  Json settings = SamplingJson(defaults.sampling);
  settings.update(LengthJson(defaults.generate));
  return settings;
}

void DescribeLlamaJobs(const Model& model, const std::vector<Job>& jobs,
                       CompletionRequest* request) {
  LlamaAnswer& answer = *request->llama;
  answer.generation_settings = LlamaSettings(model, *request);
  const std::vector<std::string>& names = answer.response_fields;
  if (!names.empty() && std::ranges::find(names, "prompt") == names.end()) return;
  for (const Job& job : jobs) {
    std::string& text = answer.prompts.emplace_back();
    for (const Token token : job.prompt) {
      text += model.TokenText(token, Model::ControlTokens::kShow);
    }
  }
}

}  // namespace ebb::server
