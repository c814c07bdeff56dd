// Sampling: which token comes next, from the logits of a step.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_SAMPLER_H_
#define EBB_SAMPLER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ebb/chat.h"
#include "ebb/model.h"
#include "ebb/state.h"
#include "ebb/status.h"
#include "ebb/types.h"

namespace [[gnu::visibility("default")]] ebb {

// Defaults are llama.cpp's. temperature 0 is greedy. The logits of a step pass, in this order:
// logit_bias; repeat penalty; presence and frequency penalty; top_k, top_p, min_p; temperature.
struct SamplingOptions {
  float temperature = 0.8f;
  int top_k = 40;
  float top_p = 0.95f;
  float min_p = 0.05f;
  // Divides the positive logits and multiplies the negative ones of the tokens that are among the
  // last repeat_last_n of the prompt and the answer (Sampler::SetText()). 1: off.
  float repeat_penalty = 1.0f;
  int repeat_last_n = 64;  // -1: all of them
  // A token that occurs n > 0 times in presence_scope loses presence_penalty +
  // n * frequency_penalty.
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  enum class PresenceScope {
    kWindow,  // the same repeat_last_n tokens, as in llama.cpp
    kAnswer,  // all tokens of the answer and none of the prompt, as in OpenAI's interface and vLLM
  };
  PresenceScope presence_scope = PresenceScope::kWindow;
  // Top_p and min_p leave at least so many candidates.
  int min_keep = 1;
  // Added to the logits of tokens, from -100 (the token does not come in practice) to 100;
  // -infinity: the token never comes.
  std::map<Token, float> logit_bias = {};
  uint64_t seed = 0;
  std::string grammar = {};  // GBNF with a rule "root"; empty: none
  // Text that the grammar describes ahead of the answer, the end of a prompt for instance.
  std::string grammar_prefix = {};
  // A lazy grammar holds from the place where the first of these begins; the text before it is
  // free. Empty: the grammar holds from the start. With a prefix: refused.
  std::vector<GrammarTrigger> grammar_triggers = {};
};

struct TokenLogprob {
  Token token = 0;
  double logprob = 0;  // natural logarithm of its probability; -infinity: ruled out
};

struct Logprobs {
  TokenLogprob chosen;
  // The likeliest tokens first; of equally likely ones the lower one.
  std::vector<TokenLogprob> top;
};

// Thread safety: one sampler belongs to one thread at a time.
class Sampler {
 public:
  // Errors: kInvalidArgument (a value out of range, a token outside the vocabulary, a grammar or a
  // trigger that does not parse, a prefix that the grammar does not admit). The model must outlive
  // the sampler.
  static Result<std::unique_ptr<Sampler>> Create(const Model& model,
                                                 const SamplingOptions& options);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // The constraint that a token must satisfy.
  enum class Constraint {
    kGrammar,
    kFree,  // nothing: thoughts are free, the answer behind them obeys the grammar
    kOpen,  // the grammar or `also`: it is not decided yet whether the answer has begun
  };
  // Whether a token may come. Of kOpen: besides those that the grammar admits. Of kFree: of all.
  using Admits = std::function<bool(Token)>;
  // The token for `position`, from logits [vocab_size]; accepts what it returns. Randomness is a
  // function of the seed, the position and the token alone. `also` counts where there is a grammar
  // that has begun to hold; null: none (kOpen), all (kFree). If a grammar admits nothing but an
  // end token, Sample() returns it, even one without a finite logit. Errors, after which nothing
  // was accepted: the logits hold no number; the grammar admits no token, or would take too long.
  [[nodiscard]] Result<Token> Sample(std::span<const float> logits, Position position,
                                     Constraint constraint = Constraint::kGrammar,
                                     const Admits& also = nullptr);
  // Decides what the tokens of kOpen were: of the answer (kGrammar), which they begin, or not
  // (kFree). Does nothing where there are none.
  void Settle(Constraint constraint);
  // How far the last token that Sample() returned was ahead of the next best candidate: the
  // difference of their logits / temperature + noise (greedy: of their logits); infinity where it
  // was the only one left.
  [[nodiscard]] double margin() const;
  // How likely each candidate was when Sample() drew the last token: after biases, penalties, the
  // grammar, top_k, top_p, min_p and temperature. Candidates that these ruled out are left out of
  // `top`, so that it may be shorter than num_top. Greedy sampling has one candidate. Without a
  // sampled token, the logprob of `chosen` is -infinity.
  // REQUIRES: num_top >= 0.
  [[nodiscard]] Logprobs LastDraw(int num_top) const;
  // Whether a grammar restricts the answer's next token; a lazy one that waits for a trigger does
  // not.
  [[nodiscard]] bool HasActiveGrammar() const;
  // A token that was forced rather than sampled: penalties count it, the grammar does not.
  void Accept(Token token);
  // Replaces the text that penalties count by `text`, which ends where the next token comes; its
  // tokens from `answer_begin` on belong to the answer. Generation calls it. Without it penalties
  // count the tokens that the sampler sampled or accepted. REQUIRES: answer_begin <= text.size().
  void SetText(std::span<const Token> text, size_t answer_begin);

  // One that stands where this one does, and goes its own way.
  [[nodiscard]] std::unique_ptr<Sampler> Clone() const;
  // The tokens that it saw.
  void SaveState(StateWriter* to) const;
  // Into a new sampler: penalties and the grammar see the tokens again. Errors: Corrupt;
  // InvalidArgument (tokens that the grammar does not admit).
  Status LoadState(StateReader* from);
  [[nodiscard]] const Model& model() const;

 private:
  struct Impl;
  explicit Sampler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// How likely a model finds the next token, by itself: before temperature, penalties, top-k and the
// like, and grammars, which are the sampler's.

// log(sum(exp(logits))), in double and without overflow; NaN where there is one, or no finite
// logit.
[[nodiscard]] double LogSumExp(std::span<const float> logits);

// logits: [vocab_size]. NaN where they hold no distribution.
// REQUIRES: chosen is in the vocabulary, num_top >= 0; of more than there are, all are given.
[[nodiscard]] Logprobs LogprobsOf(std::span<const float> logits, Token chosen, int num_top);

}  // namespace ebb

#endif  // EBB_SAMPLER_H_
