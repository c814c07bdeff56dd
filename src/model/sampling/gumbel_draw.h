// Draws a token from the softmax over the candidates, as the last link of a sampler chain: the
// token with the largest logit + Gumbel noise. The noise is a function of seed, position and token
// alone (common random numbers), so that two chains with nearly the same logits at a position draw
// the same token there, in any order and any number of times.
#ifndef EBB_MODEL_SAMPLING_GUMBEL_DRAW_H_
#define EBB_MODEL_SAMPLING_GUMBEL_DRAW_H_

#include <cstdint>

#include "ebb/types.h"

struct llama_sampler;

namespace ebb {

// Makes such a sampler. The caller, or the chain to which it is added, frees it.
[[nodiscard]] llama_sampler* NewGumbelDraw(uint64_t seed);
// Sets the position of the next draws. REQUIRES: `draw` is from NewGumbelDraw().
void SetDrawPosition(llama_sampler* draw, Position position);
// Returns by how much the largest value of the last draw exceeded the second largest. REQUIRES:
// `draw` is from NewGumbelDraw().
[[nodiscard]] double DrawMargin(const llama_sampler* draw);
// Returns a hash of the arguments that is uniform in (0, 1).
[[nodiscard]] double UniformNoise(uint64_t seed, Position position, Token token);
// kNoToken selects a random number of a position that belongs to no token.
inline constexpr Token kNoToken = -1;
// Returns -log(-log(u)), with u = UniformNoise().
[[nodiscard]] double GumbelNoise(uint64_t seed, Position position, Token token);

}  // namespace ebb

#endif  // EBB_MODEL_SAMPLING_GUMBEL_DRAW_H_
