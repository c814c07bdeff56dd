// Narrows the candidates for a token down and draws one of them: libllama's filters in the order of
// SamplingOptions::samplers, with ebb's own penalties, XTC, mirostat and random numbers.
#ifndef EBB_MODEL_SAMPLING_FILTERS_H_
#define EBB_MODEL_SAMPLING_FILTERS_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <llama.h>

#include "ebb/sampler.h"
#include "ebb/types.h"
#include "src/model/sampling/mirostat.h"
#include "src/model/sampling/penalties.h"

namespace ebb {

struct LlamaSamplerDeleter {
  void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
};
using LlamaSamplerPtr = std::unique_ptr<llama_sampler, LlamaSamplerDeleter>;

// Filters holds the samplers of one sequence and the state that they keep: the text that penalties
// and DRY look at, and mirostat's mu. Thread safety: none.
class Filters {
 public:
  // `context` is the number of tokens that DRY searches if the options contain -1.
  Filters(const llama_vocab* vocab, const SamplingOptions& options, int context);
  // Copies the state too, so that the copy continues as the original would.
  Filters(const Filters& other);
  Filters(Filters&&) = default;
  Filters& operator=(const Filters&) = delete;

  // Applies all filters to the candidates and chooses one: array->selected is its index in the
  // remaining candidates. REQUIRES: candidate i is token i, and one of them is possible.
  void Choose(Position position, llama_token_data_array* array);
  // Appends a token of the answer to the text that penalties and DRY look at.
  void Append(Token token);
  // Replaces that text; tokens from `answer_begin` on belong to the answer.
  void SetText(std::span<const Token> text, size_t answer_begin);
  // Adjusts mirostat to a chosen token that is accepted, which had this probability among the
  // candidates that Choose() left.
  void ObserveChosen(double probability);

  // Returns whether the likeliest candidate is taken, without a draw.
  [[nodiscard]] bool is_greedy() const { return draw_ == nullptr; }
  // Returns by how much the chosen candidate exceeded the next best at the last draw. REQUIRES:
  // !is_greedy().
  [[nodiscard]] double DrawMargin() const;
  // Returns mirostat's adapted mu; nullopt without mirostat.
  [[nodiscard]] std::optional<float> mirostat_mu() const;
  void SetMirostatMu(float mu);

 private:
  // Filter is one of the samplers; `sampler` is null for those of ebb.
  struct Filter {
    SamplerStage stage;
    LlamaSamplerPtr sampler;
  };
  void ApplyXtc(Position position, llama_token_data_array* array) const;

  Penalties penalties_;
  float xtc_probability_;
  float xtc_threshold_;
  size_t min_keep_;
  uint64_t seed_;
  LlamaSamplerPtr suppressed_;  // bars tokens that the model's file says to suppress; null: none
  std::vector<Filter> filters_;
  std::optional<Mirostat> mirostat_;
  LlamaSamplerPtr draw_;  // null: greedy
};

}  // namespace ebb

#endif  // EBB_MODEL_SAMPLING_FILTERS_H_
