// How likely a model finds the next token, by itself: before temperature, penalties, top-k and the
// like, and grammars, which are the sampler's.
#ifndef EBB_LOGPROBS_H_
#define EBB_LOGPROBS_H_

#include <span>
#include <vector>

#include "ebb/types.h"

namespace ebb {

// log(sum(exp(logits))), in double and without overflow; NaN where there is one, or no finite
// logit.
[[nodiscard]] double LogSumExp(std::span<const float> logits);

struct TokenLogprob {
  Token token = 0;
  double logprob = 0;  // natural logarithm of its probability; -infinity: ruled out
};

struct Logprobs {
  TokenLogprob chosen;
  // The likeliest tokens first; of equally likely ones the lower one.
  std::vector<TokenLogprob> top;
};

// logits: [vocab_size]. NaN where they hold no distribution.
// REQUIRES: chosen is in the vocabulary, num_top >= 0; of more than there are, all are given.
[[nodiscard]] Logprobs LogprobsOf(std::span<const float> logits, Token chosen, int num_top);

}  // namespace ebb

#endif  // EBB_LOGPROBS_H_
