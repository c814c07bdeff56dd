// Lowers the logits of tokens that the text already contains: repetition, presence and frequency
// penalties.
#ifndef EBB_MODEL_SAMPLING_PENALTIES_H_
#define EBB_MODEL_SAMPLING_PENALTIES_H_

#include <cstddef>
#include <span>
#include <unordered_map>
#include <vector>

#include <llama.h>

#include "ebb/sampler.h"
#include "ebb/types.h"

namespace ebb {

// Penalties counts the tokens of the prompt and of the answer, and lowers their logits. Thread
// safety: none.
class Penalties {
 public:
  explicit Penalties(const SamplingOptions& options);

  // Replaces the text; tokens from `answer_begin` on belong to the answer. REQUIRES: answer_begin
  // <= text.size().
  void SetText(std::span<const Token> text, size_t answer_begin);
  // Appends a token of the answer.
  void Append(Token token);
  // Lowers logits. Fast where candidate i is token i, as before any filter.
  void Apply(llama_token_data_array* array) const;

 private:
  using Counts = std::unordered_map<Token, int>;

  [[nodiscard]] bool IsOff() const { return repeat_ == 1 && presence_ == 0 && frequency_ == 0; }

  float repeat_;
  float presence_;
  float frequency_;
  bool counts_answer_;       // presence and frequency count all of the answer, not the window
  size_t window_;            // tokens
  std::vector<Token> text_;  // empty if all penalties are off
  Counts in_window_;
  Counts in_answer_;  // of counts_answer_
};

}  // namespace ebb

#endif  // EBB_MODEL_SAMPLING_PENALTIES_H_
