#include "src/model/sampling/gumbel_draw.h"

#include <llama.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

namespace ebb {
namespace {

struct Draw {
  uint64_t seed = 0;
  Position position = 0;
  double margin = 0;  // of the last draw
};

Draw* DrawOf(const llama_sampler* sampler) { return static_cast<Draw*>(sampler->ctx); }

const char* Name(const llama_sampler*) { return "gumbel"; }

void Apply(llama_sampler* sampler, llama_token_data_array* candidates) {
  Draw& draw = *DrawOf(sampler);
  constexpr double kNever = -std::numeric_limits<double>::infinity();
  double most = kNever, second = kNever;
  Token most_token = 0;
  candidates->selected = 0;
  for (size_t i = 0; i < candidates->size; ++i) {
    const llama_token_data& one = candidates->data[i];
    if (std::isinf(one.logit)) continue;  // excluded
    const double value = one.logit + GumbelNoise(draw.seed, draw.position, one.id);
    // Breaks ties by token, because candidates come in any order.
    if (value < most || (value == most && one.id > most_token)) {
      second = std::max(second, value);
      continue;
    }
    second = most;
    most = value;
    most_token = one.id;
    candidates->selected = static_cast<int64_t>(i);
  }
  draw.margin = most - second;
}

void Free(llama_sampler* sampler) { delete DrawOf(sampler); }
llama_sampler* Clone(const llama_sampler* sampler);

llama_sampler_i interface = {.name = Name,
                             .accept = nullptr,
                             .apply = Apply,
                             .reset = nullptr,
                             .clone = Clone,
                             .free = Free,
                             .backend_init = nullptr,
                             .backend_accept = nullptr,
                             .backend_apply = nullptr,
                             .backend_set_input = nullptr,
                             .backend_reset = nullptr,
                             .copy_state = nullptr};

llama_sampler* New(const Draw& draw) {
  auto context = std::make_unique<Draw>(draw);
  llama_sampler* sampler = llama_sampler_init(&interface, context.get());
  context.release();
  return sampler;
}

llama_sampler* Clone(const llama_sampler* sampler) { return New(*DrawOf(sampler)); }

}  // namespace

llama_sampler* NewGumbelDraw(uint64_t seed) { return New({.seed = seed}); }

void SetDrawPosition(llama_sampler* draw, Position position) { DrawOf(draw)->position = position; }
double DrawMargin(const llama_sampler* draw) { return DrawOf(draw)->margin; }

double UniformNoise(uint64_t seed, Position position, Token token) {
  const int32_t place[] = {position, token};
  const XXH64_hash_t bits = XXH3_64bits_withSeed(place, sizeof place, seed);
  return (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;
}

double GumbelNoise(uint64_t seed, Position position, Token token) {
  return -std::log(-std::log(UniformNoise(seed, position, token)));
}

}  // namespace ebb
