#include "src/model/sampling/penalties.h"

#include <algorithm>
#include <limits>

namespace ebb {

Penalties::Penalties(const SamplingOptions& options)
    : repeat_(options.repeat_penalty),
      presence_(options.presence_penalty),
      frequency_(options.frequency_penalty),
      counts_answer_(options.presence_scope == SamplingOptions::PresenceScope::kAnswer),
      window_(options.repeat_last_n < 0 ? std::numeric_limits<size_t>::max()
                                        : static_cast<size_t>(options.repeat_last_n)) {}

void Penalties::SetText(std::span<const Token> text, size_t answer_begin) {
  text_.clear();
  in_window_.clear();
  in_answer_.clear();
  if (IsOff()) return;
  text_.reserve(text.size());
  for (const Token token : text) Append(token);
  in_answer_.clear();
  for (const Token token : text.subspan(answer_begin)) ++in_answer_[token];
}

void Penalties::Append(Token token) {
  if (IsOff()) return;
  text_.push_back(token);
  ++in_answer_[token];
  if (window_ == 0) return;
  ++in_window_[token];
  if (text_.size() <= window_) return;
  const auto oldest = in_window_.find(text_[text_.size() - window_ - 1]);
  if (--oldest->second == 0) in_window_.erase(oldest);
}

void Penalties::Apply(llama_token_data_array* array) const {
  if (IsOff()) return;
  const std::span<llama_token_data> candidates(array->data, array->size);
  const auto logit = [&](Token token) -> float* {
    const auto index = static_cast<size_t>(token);
    if (index < candidates.size() && candidates[index].id == token) return &candidates[index].logit;
    const auto found = std::ranges::find(candidates, token, &llama_token_data::id);
    return found == candidates.end() ? nullptr : &found->logit;
  };
  if (repeat_ != 1) {
    for (const auto& [token, times] : in_window_) {
      float* const to = logit(token);
      if (to != nullptr) *to = *to > 0 ? *to / repeat_ : *to * repeat_;
    }
  }
  if (presence_ == 0 && frequency_ == 0) return;
  for (const auto& [token, times] : counts_answer_ ? in_answer_ : in_window_) {
    float* const to = logit(token);
    if (to != nullptr) *to -= presence_ + static_cast<float>(times) * frequency_;
  }
  array->sorted = false;
}

}  // namespace ebb
