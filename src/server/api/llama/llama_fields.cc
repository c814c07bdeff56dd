#include "src/server/api/llama/llama_fields.h"

#include <algorithm>
#include <utility>

namespace ebb::server {
namespace {

// Adds a LlamaFields to a request.
class LlamaApplier {
 public:
  LlamaApplier(const Model& model, const LlamaFields& fields, CompletionRequest* request)
      : model_(model), fields_(fields), request_(*request) {}

  std::optional<ApiError> Apply(LlamaAnswer* answer) {
    if (auto error = SetPrompts()) return error;
    SetLimits();
    SetSampling();
    if (auto error = SetBiases()) return error;
    if (const int most = fields_.num_probs.value_or(0); most > 0) request_.logprobs = most;
    if (fields_.answer.post_sampling_probs) {
      request_.logprob_source = Job::LogprobSource::kSampler;
    }
    request_.tells_tokens = true;
    request_.tells_progress = request_.streams;
    answer->generation_settings = LlamaSettings(model_, request_, *answer);
    return std::nullopt;
  }

 private:
  // Keeps texts as texts, which Prepare() tokenizes; tokenizes any other prompt.
  std::optional<ApiError> SetPrompts() {
    request_.texts.clear();
    request_.prompts.clear();
    if (fields_.infill.has_value()) {
      EBB_ASSIGN_OR_RETURN(std::vector<Token> prompt,
                           InfillPrompt(model_, *fields_.infill, MostInfillTokens()));
      request_.prompts.push_back(std::move(prompt));
      return std::nullopt;
    }
    const bool are_texts = std::ranges::all_of(fields_.prompts, [](const MixedPrompt& prompt) {
      return prompt.size() == 1 && std::holds_alternative<std::string>(prompt.front());
    });
    for (const MixedPrompt& prompt : fields_.prompts) {
      if (are_texts) {
        request_.texts.push_back(std::get<std::string>(prompt.front()));
      } else if (auto error = AddTokens(prompt)) {
        return error;
      }
    }
    return std::nullopt;
  }

  std::optional<ApiError> AddTokens(const MixedPrompt& prompt) {
    std::vector<Token>& tokens = request_.prompts.emplace_back();
    for (const auto& part : prompt) {
      if (const auto* token = std::get_if<Token>(&part)) {
        tokens.push_back(*token);
        continue;
      }
      const bool is_first = &part == &prompt.front();
      const Result<std::vector<Token>> more = model_.Tokenize(
          std::get<std::string>(part), is_first ? Model::AddBos::kAsModelSays : Model::AddBos::kNo,
          Model::Specials::kParse);
      if (!more.ok()) return ErrorFrom(more.status());
      tokens.insert(tokens.end(), more->begin(), more->end());
    }
    return std::nullopt;
  }

  // Returns how many tokens of the context the answer does not need.
  [[nodiscard]] size_t MostInfillTokens() const {
    const int given = request_.session.context;
    const int context = given > 0 ? given : model_.shape().trained_context;
    const int wanted = fields_.max_tokens.value_or(request_.generate.max_tokens);
    const int kept = wanted < 0 ? context / 4 : std::min(wanted, context / 2);
    return static_cast<size_t>(std::max(1, context - kept - 1));
  }

  void SetLimits() {
    if (fields_.max_tokens.has_value()) request_.generate.max_tokens = *fields_.max_tokens;
    request_.generate.line_seconds = fields_.line_seconds;
  }

  void SetSampling() {
    SamplingOptions& sampling = request_.sampling;
    if (fields_.temperature.has_value()) sampling.temperature = *fields_.temperature;
    sampling.presence_scope = SamplingOptions::PresenceScope::kWindow;
    sampling.repeat_last_n = fields_.repeat_last_n.value_or(SamplingOptions().repeat_last_n);
    if (fields_.min_keep.has_value()) sampling.min_keep = *fields_.min_keep;
    ApplyLlamaSamplers(fields_.samplers, &sampling);
    if (!fields_.samplers.is_in_order) request_.ignored.emplace_back("samplers");
    for (const std::string& name : fields_.samplers.unknown) {
      request_.ignored.push_back("samplers." + name);
    }
  }

  std::optional<ApiError> SetBiases() {
    for (const LlamaBias& one : fields_.biases) {
      if (const auto* token = std::get_if<Token>(&one.of)) {
        request_.sampling.logit_bias[*token] = one.bias;
        continue;
      }
      const Result<std::vector<Token>> tokens = model_.Tokenize(
          std::get<std::string>(one.of), Model::AddBos::kNo, Model::Specials::kAsText);
      if (!tokens.ok()) return ErrorFrom(tokens.status());
      for (const Token token : *tokens) request_.sampling.logit_bias[token] = one.bias;
    }
    return std::nullopt;
  }

  const Model& model_;
  const LlamaFields& fields_;
  CompletionRequest& request_;
};

}  // namespace

std::optional<ApiError> ApplyLlamaFields(const Model& model, const LlamaFields& fields,
                                         CompletionRequest* request, LlamaAnswer* answer) {
  return LlamaApplier(model, fields, request).Apply(answer);
}

}  // namespace ebb::server
