#include "tests/support/model_variants.h"

#include <random>

namespace ebb {
namespace {

using Biases = RandomGgufOptions::Biases;
using Embeddings = RandomGgufOptions::Embeddings;
using Rope = RandomGgufOptions::Rope;

struct Heads {
  int q, kv, dim;
};

// qwen2 has embed_dim == heads * head_dim; the others get a width of their own, so that a mix-up
// of the two shows.
ModelVariant Make(std::string name, std::string family, Heads heads, Rope rope,
                  Embeddings embeddings, Biases biases = Biases::kNone) {
  ModelVariant variant = {.name = std::move(name), .options = {}};
  RandomGgufOptions& o = variant.options;
  o.family = std::move(family);
  o.num_layers = 3;
  o.num_q_heads = heads.q;
  o.num_kv_heads = heads.kv;
  o.head_dim = heads.dim;
  o.embed_dim = o.family == "qwen2" ? heads.q * heads.dim : 288;
  o.feed_forward_dim = 416;
  o.rope = rope;
  o.embeddings = embeddings;
  o.biases = biases;
  o.seed = std::hash<std::string>()(variant.name);
  return variant;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const ModelVariant& variant) {
  return out << variant.name;
}

std::vector<ModelVariant> ModelVariants() {
  const auto tied = Embeddings::kTied;
  const auto untied = Embeddings::kUntied;
  ModelVariant apart =
      Make("llama_gqa2_head128_apart", "llama", {8, 4, 128}, Rope::kNone, tied, Biases::kQkv);
  apart.options.embed_dim = 544;  // so that the projections are too large to be joined
  // Seven layers, so that one sees all tokens; and each way to say which do.
  ModelVariant gemma = Make("gemma3_gqa4_head256_tied", "gemma3", {4, 1, 256}, Rope::kNone, tied);
  gemma.options.num_layers = 7;
  gemma.options.sliding_window = 24;
  gemma.options.rope_base = 1e6f;
  ModelVariant pattern =
      Make("gemma3_gqa2_head64_linear", "gemma3", {4, 2, 64}, Rope::kLinear, untied);
  pattern.options.sliding_window = 16;
  pattern.options.window_pattern = 2;
  ModelVariant listed =
      Make("gemma3_gqa1_head80_biases", "gemma3", {3, 3, 80}, Rope::kNone, tied, Biases::kQkv);
  listed.options.sliding_window = 33;
  listed.options.window_layers = {false, true, true};
  ModelVariant no_window =
      Make("gemma3_gqa2_head96_no_window", "gemma3", {4, 2, 96}, Rope::kNone, tied);
  ModelVariant deci = Make("deci_kv_heads_1_4_2_8", "deci", {8, 8, 64}, Rope::kNone, tied);
  deci.options.num_layers = 4;
  deci.options.kv_heads_by_layer = {1, 4, 2, 8};
  ModelVariant deci_llama3 = Make("deci_kv_heads_3_1_1_llama3", "deci", {3, 3, 80}, Rope::kLlama3,
                                  untied, Biases::kQkvAndOutput);
  deci_llama3.options.kv_heads_by_layer = {3, 1, 1};
  return {
      apart,
      gemma,
      pattern,
      listed,
      no_window,
      deci,
      deci_llama3,
      Make("llama_gqa3_head64_tied", "llama", {9, 3, 64}, Rope::kNone, tied),
      Make("llama_gqa1_head80_untied", "llama", {4, 4, 80}, Rope::kNone, untied),
      Make("llama_gqa4_head128_llama3", "llama", {8, 2, 128}, Rope::kLlama3, untied),
      Make("llama_gqa8_head96_yarn", "llama", {8, 1, 96}, Rope::kYarn, tied),
      Make("llama_gqa1_head256_linear", "llama", {2, 2, 256}, Rope::kLinear, untied),
      Make("llama_gqa4_head64_biases", "llama", {4, 1, 64}, Rope::kNone, tied,
           Biases::kQkvAndOutput),
      Make("qwen2_gqa4_head64_biases_tied", "qwen2", {8, 2, 64}, Rope::kNone, tied, Biases::kQkv),
      Make("qwen2_gqa3_head128_biases_yarn", "qwen2", {3, 1, 128}, Rope::kYarn, untied,
           Biases::kQkv),
      Make("qwen2_gqa1_head96_linear", "qwen2", {3, 3, 96}, Rope::kLinear, untied),
      Make("qwen2_gqa8_head80_biases", "qwen2", {8, 1, 80}, Rope::kNone, untied, Biases::kQkv),
      Make("qwen3_gqa4_head128_tied", "qwen3", {4, 1, 128}, Rope::kNone, tied),
      Make("qwen3_gqa8_head64_yarn", "qwen3", {16, 2, 64}, Rope::kYarn, untied),
      Make("qwen3_gqa1_head256_linear", "qwen3", {2, 2, 256}, Rope::kLinear, tied),
      Make("qwen3_gqa3_head80_biases", "qwen3", {6, 2, 80}, Rope::kNone, untied, Biases::kQkv),
  };
}

std::vector<Token> RandomTokens(const RandomGgufOptions& options, size_t count, uint64_t seed) {
  constexpr Token kFirstPlain = 3;
  std::mt19937_64 random(seed);
  std::vector<Token> tokens(count);
  for (Token& token : tokens) {
    token = kFirstPlain + static_cast<Token>(random() % (options.num_tokens - kFirstPlain));
  }
  return tokens;
}

}  // namespace ebb
