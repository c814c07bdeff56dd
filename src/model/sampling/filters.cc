#include "src/model/sampling/filters.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "src/model/sampling/gumbel_draw.h"

namespace ebb {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

// Returns a sampler that bars the tokens that the model's file says to suppress; null: there are
// none.
LlamaSamplerPtr MakeSuppressed(const llama_vocab* vocab) {
  const int32_t num_tokens = llama_vocab_n_tokens(vocab);
  int32_t count = 0;
  const llama_token* const suppressed = llama_vocab_get_suppress_tokens(vocab, &count);
  std::vector<llama_logit_bias> bias;
  for (int32_t i = 0; i < count; ++i) {
    if (suppressed[i] >= 0 && suppressed[i] < num_tokens) bias.push_back({suppressed[i], kNever});
  }
  if (bias.empty()) return nullptr;
  return LlamaSamplerPtr(
      llama_sampler_init_logit_bias(num_tokens, static_cast<int32_t>(bias.size()), bias.data()));
}

LlamaSamplerPtr MakeDry(const llama_vocab* vocab, const SamplingOptions& options, int context) {
  std::vector<const char*> breakers;
  for (const std::string& one : options.dry_sequence_breakers) breakers.push_back(one.c_str());
  const int last_n = options.dry_penalty_last_n < 0 ? context : options.dry_penalty_last_n;
  return LlamaSamplerPtr(llama_sampler_init_dry(vocab, options.dry_multiplier, options.dry_base,
                                                options.dry_allowed_length, last_n, breakers.data(),
                                                breakers.size()));
}

// Returns libllama's sampler of a stage; null: the stage is ebb's own.
LlamaSamplerPtr MakeSampler(SamplerStage stage, const llama_vocab* vocab,
                            const SamplingOptions& options, int context) {
  const auto min_keep = static_cast<size_t>(std::max(1, options.min_keep));
  switch (stage) {
    case SamplerStage::kPenalties:
    case SamplerStage::kXtc:
      return nullptr;
    case SamplerStage::kDry:
      return MakeDry(vocab, options, context);
    case SamplerStage::kTopNSigma:
      return LlamaSamplerPtr(llama_sampler_init_top_n_sigma(options.top_n_sigma));
    case SamplerStage::kTopK:
      return LlamaSamplerPtr(llama_sampler_init_top_k(options.top_k));
    case SamplerStage::kTypicalP:
      return LlamaSamplerPtr(llama_sampler_init_typical(options.typical_p, min_keep));
    case SamplerStage::kTopP:
      return LlamaSamplerPtr(llama_sampler_init_top_p(options.top_p, min_keep));
    case SamplerStage::kMinP:
      return LlamaSamplerPtr(llama_sampler_init_min_p(options.min_p, min_keep));
    case SamplerStage::kTemperature:
      return LlamaSamplerPtr(options.dynatemp_range > 0
                                 ? llama_sampler_init_temp_ext(options.temperature,
                                                               options.dynatemp_range,
                                                               options.dynatemp_exponent)
                                 : llama_sampler_init_temp(options.temperature));
  }
  return nullptr;
}

// Returns whether the stage runs. Greedy sampling skips the filters that never remove the
// likeliest token, unless one that may do so runs: it depends on the candidates that the others
// leave.
bool Runs(SamplerStage stage, const SamplingOptions& options) {
  const bool has_temperature = options.temperature > 0;
  const bool has_xtc = options.xtc_probability > 0 && options.xtc_threshold <= 0.5F;
  const bool is_typical = options.typical_p < 1;
  const bool filters = options.mirostat == 0 && (has_temperature || has_xtc || is_typical);
  switch (stage) {
    case SamplerStage::kPenalties:
      return true;
    case SamplerStage::kDry:
      return options.mirostat == 0 && options.dry_multiplier != 0;
    case SamplerStage::kTopNSigma:
      return filters && options.top_n_sigma > 0;
    case SamplerStage::kTypicalP:
      return filters && is_typical;
    case SamplerStage::kXtc:
      return filters && has_xtc;
    case SamplerStage::kTemperature:
      return has_temperature;
    case SamplerStage::kTopK:
    case SamplerStage::kTopP:
    case SamplerStage::kMinP:
      return filters;
  }
  return false;
}

}  // namespace

Filters::Filters(const llama_vocab* vocab, const SamplingOptions& options, int context)
    : penalties_(options),
      xtc_probability_(options.xtc_probability),
      xtc_threshold_(options.xtc_threshold),
      min_keep_(static_cast<size_t>(std::max(1, options.min_keep))),
      seed_(options.seed),
      suppressed_(MakeSuppressed(vocab)) {
  for (const SamplerStage stage : options.samplers) {
    if (Runs(stage, options)) {
      filters_.push_back({stage, MakeSampler(stage, vocab, options, context)});
    }
  }
  if (options.temperature == 0) return;
  if (options.mirostat > 0) {
    mirostat_.emplace(options.mirostat, options.mirostat_tau, options.mirostat_eta,
                      llama_vocab_n_tokens(vocab));
  }
  draw_.reset(NewGumbelDraw(options.seed));
}

Filters::Filters(const Filters& other)
    : penalties_(other.penalties_),
      xtc_probability_(other.xtc_probability_),
      xtc_threshold_(other.xtc_threshold_),
      min_keep_(other.min_keep_),
      seed_(other.seed_),
      mirostat_(other.mirostat_) {
  const auto copy = [](const LlamaSamplerPtr& sampler) {
    return LlamaSamplerPtr(sampler == nullptr ? nullptr : llama_sampler_clone(sampler.get()));
  };
  suppressed_ = copy(other.suppressed_);
  for (const Filter& filter : other.filters_) {
    filters_.push_back({filter.stage, copy(filter.sampler)});
  }
  draw_ = copy(other.draw_);
}

void Filters::Choose(Position position, llama_token_data_array* array) {
  if (suppressed_ != nullptr) llama_sampler_apply(suppressed_.get(), array);
  for (const Filter& filter : filters_) {
    if (filter.sampler != nullptr) {
      llama_sampler_apply(filter.sampler.get(), array);
    } else if (filter.stage == SamplerStage::kPenalties) {
      penalties_.Apply(array);
    } else {
      ApplyXtc(position, array);
    }
  }
  if (mirostat_.has_value()) mirostat_->Apply(array);
  if (draw_ != nullptr) {
    SetDrawPosition(draw_.get(), position);
    llama_sampler_apply(draw_.get(), array);
  } else {
    const auto* const most =
        std::max_element(array->data, array->data + array->size,
                         [](const auto& a, const auto& b) { return a.logit < b.logit; });
    array->selected = most - array->data;
  }
}

// XTC removes, with a probability, all candidates that reach a threshold but the least likely of
// them, so that a likely token makes room for less usual ones.
void Filters::ApplyXtc(Position position, llama_token_data_array* array) const {
  if (array->size < 2 || UniformNoise(seed_, position, kNoToken) > xtc_probability_) return;
  SortByProbability(array);
  size_t reaching = 0;
  while (reaching < array->size && array->data[reaching].p >= xtc_threshold_) ++reaching;
  if (reaching < 2 || array->size - (reaching - 1) < min_keep_) return;
  array->data += reaching - 1;
  array->size -= reaching - 1;
}

void Filters::Append(Token token) {
  penalties_.Append(token);
  for (const Filter& filter : filters_) {
    if (filter.stage == SamplerStage::kDry) llama_sampler_accept(filter.sampler.get(), token);
  }
}

void Filters::SetText(std::span<const Token> text, size_t answer_begin) {
  penalties_.SetText(text, answer_begin);
  for (const Filter& filter : filters_) {
    if (filter.stage != SamplerStage::kDry) continue;
    llama_sampler_reset(filter.sampler.get());
    for (const Token token : text) llama_sampler_accept(filter.sampler.get(), token);
  }
}

double Filters::DrawMargin() const { return ebb::DrawMargin(draw_.get()); }

std::optional<float> Filters::mirostat_mu() const {
  return mirostat_.has_value() ? std::optional(mirostat_->mu()) : std::nullopt;
}

void Filters::SetMirostatMu(float mu) {
  if (mirostat_.has_value()) mirostat_->set_mu(mu);
}

void Filters::ObserveChosen(double probability) {
  if (mirostat_.has_value()) mirostat_->Observe(probability);
}

}  // namespace ebb
