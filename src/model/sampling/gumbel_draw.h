// The last link of a sampler chain: a draw from the softmax over the candidates, as the largest
// logit + Gumbel noise. The noise is a function of the seed, the token's position and the token
// alone (common random numbers), so that two chains that see nearly the same logits at a position
// draw the same token there, however often and in whatever order they draw.
#ifndef EBB_MODEL_SAMPLING_GUMBEL_DRAW_H_
#define EBB_MODEL_SAMPLING_GUMBEL_DRAW_H_

#include <cstdint>

#include "ebb/types.h"

struct llama_sampler;

namespace ebb {

// The caller, or the chain that it is added to, frees it.
[[nodiscard]] llama_sampler* NewGumbelDraw(uint64_t seed);
// Where the next draws stand. REQUIRES: the sampler is one of NewGumbelDraw().
void SetDrawPosition(llama_sampler* draw, Position position);
// How far the largest value of the last draw was ahead of the next one. REQUIRES: as above.
[[nodiscard]] double DrawMargin(const llama_sampler* draw);
// -log(-log(u)), u uniform in (0, 1).
[[nodiscard]] double GumbelNoise(uint64_t seed, Position position, Token token);

}  // namespace ebb

#endif  // EBB_MODEL_SAMPLING_GUMBEL_DRAW_H_
