// Writes small models with random weights: any family, shape, weight type and RoPE scaling that ebb
// runs, with a tokenizer that libllama loads. Weights are scaled so that attention is far from
// uniform and logits have a standard deviation of about 2. The same options give the same bytes.
#ifndef EBB_TESTS_SUPPORT_RANDOM_GGUF_H_
#define EBB_TESTS_SUPPORT_RANDOM_GGUF_H_

#include <cstdint>
#include <string>
#include <vector>

#include "ebb/status.h"

namespace ebb {

struct RandomGgufOptions {
  std::string family = "llama";  // "llama", "qwen2", "qwen3", "gemma3", "deci"
  int num_layers = 2;
  int embed_dim = 256;
  int num_q_heads = 4;
  int num_kv_heads = 2;
  std::vector<int> kv_heads_by_layer = {};  // instead, [num_layers]
  // Of "gemma3": tokens, 0: none; every so many layers without one; or for each layer whether it
  // has one.
  int sliding_window = 0;
  int window_pattern = 0;  // 0: the file does not say
  std::vector<bool> window_layers = {};
  int head_dim = 64;
  int feed_forward_dim = 512;
  int num_tokens = 384;  // of the tokenizer; see Tokenizer for the least
  int context = 4096;
  std::string weight_type = "f32";  // as ggml names it: "f16", "q8_0", "q4_0", "q4_K", ...
  std::string value_type;           // of attn_v; empty: weight_type

  enum class Biases { kNone, kQkv, kQkvAndOutput };
  Biases biases = Biases::kNone;
  enum class Embeddings { kTied, kUntied };
  Embeddings embeddings = Embeddings::kTied;
  // kLlama3: rope_freqs.weight; the others: metadata.
  enum class Rope { kNone, kLinear, kYarn, kLlama3 };
  Rope rope = Rope::kNone;
  float rope_base = 10000;
  float rope_factor = 4;  // of kLinear and kYarn; the original context is context / rope_factor

  // kBytePair: byte-level, 3 control tokens, 256 bytes, then pairs of letters: at least 260.
  // kUnigram: sentence-piece like, 3 control tokens, 256 bytes, then letters: at least 260.
  // kMinimal: byte-level with 3 control tokens and some letters only: at least 8. Most bytes have
  // no token.
  enum class Tokenizer { kBytePair, kUnigram, kMinimal };
  Tokenizer tokenizer = Tokenizer::kBytePair;
  // Above 0: the model marks rows (docs/dev/formats.md), somewhat less than half of them.
  int eviction_window = 0;  // tokens
  int eviction_shift = 1;   // tokens
  // kQueryChannel: in a channel of the queries. kAdapter: by tensors of its own, beside which all
  // others are those of a model that marks nothing.
  enum class Marks { kQueryChannel, kAdapter };
  Marks marks = Marks::kQueryChannel;
  uint64_t seed = 1;
  // All layers have the weights of the first: of large shapes, to measure speed with.
  bool repeats_layers = false;
};

// RandomEagle3Options describe an EAGLE-3 head. Its tokenizer, its shape and the seed are those of
// its target, but for what these say.
struct RandomEagle3Options {
  std::vector<int> target_layers = {1, 2, 3};  // whose inputs the head reads
  int target_hidden_size = 0;                  // 0: the target's
  int embed_dim = 0;                           // 0: the target's
  // kOwn: the file has embeddings and an output matrix. kTargets: the head reads the target's.
  enum class Tables { kOwn, kTargets };
  Tables tables = Tables::kOwn;
  int num_drafted = 0;  // tokens that the head's own output matrix has; 0: all
  bool norm_before_fc = false;
  bool norm_before_residual = false;
  std::string weight_type = "f32";
  bool has_wrong_token = false;  // in the table of the drafted tokens
};

// Errors: InvalidArgument for what cannot be built (unknown weight type, rows that its blocks do
// not divide, too few tokens); IoError.
Status WriteRandomGguf(const RandomGgufOptions& options, const std::string& path);
// RandomAssistantOptions describe an assistant of a Gemma 4 model.
struct RandomAssistantOptions {
  int target_embed_dim = 128;
  int num_kv_heads = 2;
  int head_dim = 64;         // of layers without a window
  int window_head_dim = 32;  // of the others
  int sliding_window = 32;
  int num_tokens = 128;
  std::string weight_type = "f32";
};
Status WriteRandomAssistant(const RandomAssistantOptions& options, const std::string& path);
// RandomDflashOptions describe a DFlash head. Its tokenizer, its shape and the seed are those of
// its target; it reads the target's embeddings and output matrix.
struct RandomDflashOptions {
  std::vector<int> target_layers = {1, 2, 3};  // whose inputs the head reads
  int block_size = 8;
  int sliding_window = 0;  // of the first of two layers, in tokens; 0: none
  bool has_markov_head = false;
  std::string weight_type = "f32";
};
Status WriteRandomDflash(const RandomGgufOptions& target, const RandomDflashOptions& options,
                         const std::string& path);
Status WriteRandomEagle3(const RandomGgufOptions& target, const RandomEagle3Options& options,
                         const std::string& path);
// The adapter's file that makes of the model with these options, but for eviction_window = 0, the
// one with Marks::kAdapter. REQUIRES: eviction_window > 0.
Status WriteRandomAdapter(const RandomGgufOptions& options, const std::string& path);

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_RANDOM_GGUF_H_
