// Sampling chooses the next token from the logits of a step.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_SAMPLER_H_
#define EBB_SAMPLER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/chat.h"
#include "ebb/model.h"
#include "ebb/state.h"
#include "ebb/status.h"
#include "ebb/types.h"

namespace [[gnu::visibility("default")]] ebb {

// SamplerStage names a sampler, as llama.cpp's --samplers does; the order is the usual one.
enum class SamplerStage : uint8_t {
  kPenalties,
  kDry,
  kTopNSigma,
  kTopK,
  kTypicalP,
  kTopP,
  kMinP,
  kXtc,
  kTemperature,
};
// Returns llama.cpp's name: "top_k", "typ_p".
[[nodiscard]] std::string_view SamplerStageName(SamplerStage stage);
// Returns the sampler of that name, or nothing.
[[nodiscard]] std::optional<SamplerStage> FindSamplerStage(std::string_view name);
// Reads names with a semicolon or a comma between them: "top_k;temperature". Errors:
// InvalidArgument (an unknown name, a name twice).
[[nodiscard]] Result<std::vector<SamplerStage>> ParseSamplerStages(std::string_view text);

// SamplingOptions has llama.cpp's names and defaults. The sampler applies logit_bias first and then
// the members of `samplers` in their order; a sampler that is not among them is off. temperature 0
// takes the likeliest token that is left. Every random number is ebb's: a function of the seed, the
// position and the token.
struct SamplingOptions {
  float temperature = 0.8f;
  // Varies the temperature between temperature - dynatemp_range and + dynatemp_range with the
  // entropy of the candidates, raised to dynatemp_exponent. 0: off.
  float dynatemp_range = 0.0f;
  float dynatemp_exponent = 1.0f;
  int top_k = 40;
  float top_p = 0.95f;
  float min_p = 0.05f;
  float typical_p = 1.0f;     // locally typical sampling; 1: off
  float top_n_sigma = -1.0f;  // keeps logits within n standard deviations of the largest; <= 0: off
  // XTC: with xtc_probability, removes all candidates of at least xtc_threshold but the least
  // likely of them. 0, or a threshold above 0.5: off.
  float xtc_probability = 0.0f;
  float xtc_threshold = 0.1f;
  // DRY: subtracts dry_multiplier * dry_base ^ (length - dry_allowed_length) from the logit of a
  // token that would repeat a sequence of `length` tokens of the last dry_penalty_last_n (-1: of
  // the trained context). A sequence does not go over a text of dry_sequence_breakers. Multiplier
  // 0: off.
  float dry_multiplier = 0.0f;
  float dry_base = 1.75f;
  int dry_allowed_length = 2;
  int dry_penalty_last_n = -1;
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};
  // Mirostat 1 or 2 keeps the surprise of tokens near mirostat_tau bits and takes the place of all
  // other filters but penalties and temperature; 0: off.
  int mirostat = 0;
  float mirostat_tau = 5.0f;
  float mirostat_eta = 0.1f;
  std::vector<SamplerStage> samplers = {
      SamplerStage::kPenalties, SamplerStage::kDry,      SamplerStage::kTopNSigma,
      SamplerStage::kTopK,      SamplerStage::kTypicalP, SamplerStage::kTopP,
      SamplerStage::kMinP,      SamplerStage::kXtc,      SamplerStage::kTemperature};
  // Penalizes the tokens that are among the last repeat_last_n tokens of the prompt and the answer
  // (Sampler::SetText()): divides their positive logits and multiplies their negative ones. 1: off.
  float repeat_penalty = 1.0f;
  int repeat_last_n = 64;  // -1: all of them
  // presence_penalty + n * frequency_penalty is subtracted from the logit of a token that occurs n
  // > 0 times in presence_scope.
  float presence_penalty = 0.0f;
  float frequency_penalty = 0.0f;
  enum class PresenceScope {
    kWindow,  // the same repeat_last_n tokens, as in llama.cpp
    kAnswer,  // all tokens of the answer and none of the prompt, as in OpenAI's interface and vLLM
  };
  PresenceScope presence_scope = PresenceScope::kWindow;
  // Keeps at least so many candidates after top_p and min_p.
  int min_keep = 1;
  // Adds to the logits of tokens: from -100 (in practice the token is never sampled) to 100;
  // -infinity rules the token out.
  std::map<Token, float> logit_bias = {};
  uint64_t seed = 0;
  std::string grammar = {};  // GBNF with a rule "root"; empty: none
  // Holds text that the grammar must accept before the answer, for instance the end of a prompt
  // that already began the answer.
  std::string grammar_prefix = {};
  // Makes the grammar lazy: it restricts the answer from the place where the first trigger begins;
  // text before that is free. Empty: the grammar holds from the start. Refused together with
  // grammar_prefix.
  std::vector<GrammarTrigger> grammar_triggers = {};
};

// TokenLogprob is a token with its log probability.
struct TokenLogprob {
  Token token = 0;
  double logprob = 0;  // natural logarithm of its probability; -infinity: ruled out
};

// Logprobs holds the log probabilities of the chosen token and of the likeliest ones.
struct Logprobs {
  TokenLogprob chosen;
  // Lists the likeliest tokens first; of equally likely tokens the lower number comes first.
  std::vector<TokenLogprob> top;
};

// Samples tokens and keeps the state that this needs: the grammar and the tokens that penalties
// count. Thread safety: one sampler belongs to one thread at a time.
class Sampler {
 public:
  // Creates a sampler. Errors: kInvalidArgument (a value out of range, a token outside the
  // vocabulary, a grammar or a trigger that does not parse, a prefix that the grammar does not
  // accept). The model must outlive the sampler.
  static Result<std::unique_ptr<Sampler>> Create(const Model& model,
                                                 const SamplingOptions& options);
  ~Sampler();
  Sampler(const Sampler&) = delete;
  Sampler& operator=(const Sampler&) = delete;

  // Constraint is the condition that a sampled token must satisfy.
  enum class Constraint {
    kGrammar,
    kFree,  // nothing: thoughts are free, the answer behind them obeys the grammar
    kOpen,  // the grammar or `also`: it is not decided yet whether the answer has begun
  };
  // Admits returns whether a token may be sampled. With kOpen it admits tokens besides those of the
  // grammar; with kFree it restricts all tokens.
  using Admits = std::function<bool(Token)>;
  // Samples the token for `position` from logits [vocab_size] and accepts it. The random draw is a
  // function of the seed, the position and the token alone, so that similar logits draw alike.
  // `also` has an effect only once a grammar holds; null admits no token besides the grammar's
  // (kOpen), or every token (kFree). If the grammar admits nothing but an end token, Sample()
  // returns the end token, even if its logit is not finite. Errors, after which no token was
  // accepted: the logits hold no number; the grammar admits no token, or would take too long.
  [[nodiscard]] Result<Token> Sample(std::span<const float> logits, Position position,
                                     Constraint constraint = Constraint::kGrammar,
                                     const Admits& also = nullptr);
  // Decides, for the tokens that were sampled under kOpen, whether they began the answer (kGrammar:
  // the grammar accepts them) or not (kFree). Does nothing if there are no such tokens.
  void Settle(Constraint constraint);
  // Returns how far the token that Sample() returned last was ahead of the next best candidate: the
  // difference of their logits / temperature + noise (greedy: of their logits); infinity if no
  // other candidate was left.
  [[nodiscard]] double margin() const;
  // Returns the probabilities from which Sample() drew the last token: after biases, the grammar
  // and all samplers. `top` lacks candidates that these ruled out, so that it may be shorter than
  // num_top. Greedy sampling has one candidate. Before the first sampled token, the logprob of
  // `chosen` is -infinity. REQUIRES: num_top >= 0.
  [[nodiscard]] Logprobs LastDraw(int num_top) const;
  // Returns whether a grammar restricts the answer's next token; false for a lazy grammar that
  // waits for its trigger.
  [[nodiscard]] bool HasActiveGrammar() const;
  // Accepts a token that the caller forced instead of sampling: penalties count the token, the
  // grammar does not read it.
  void Accept(Token token);
  // Replaces the text that penalties count. The text ends where the next token will stand; its
  // tokens from `answer_begin` on belong to the answer. Generation calls SetText(); without it
  // penalties count the tokens that were sampled or accepted. REQUIRES: answer_begin <=
  // text.size().
  void SetText(std::span<const Token> text, size_t answer_begin);

  // Returns an independent sampler with a copy of this one's state.
  [[nodiscard]] std::unique_ptr<Sampler> Clone() const;
  // Writes the tokens that the sampler has accepted, and what mirostat has learned.
  void SaveState(StateWriter* to) const;
  // Restores the state of a new sampler by accepting the saved tokens again. Errors: Corrupt;
  // InvalidArgument (the grammar does not admit the tokens).
  Status LoadState(StateReader* from);
  [[nodiscard]] const Model& model() const;

 private:
  struct Impl;
  explicit Sampler(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// The functions below compute the model's own probabilities of the next token: before temperature,
// penalties, top-k, grammars and the like, which are the sampler's.

// Returns log(sum(exp(logits))), in double and without overflow; NaN if a logit is NaN or none is
// finite.
[[nodiscard]] double LogSumExp(std::span<const float> logits);

// Returns the log probabilities of `chosen` and of the num_top likeliest tokens (all tokens, if the
// vocabulary has fewer), from logits [vocab_size]. They are NaN if the logits hold no distribution.
// REQUIRES: `chosen` is in the vocabulary, num_top >= 0.
[[nodiscard]] Logprobs LogprobsOf(std::span<const float> logits, Token chosen, int num_top);

}  // namespace ebb

#endif  // EBB_SAMPLER_H_
