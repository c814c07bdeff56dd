// Computes decoder graphs without the cache: attention is made of ggml's own operations over the
// keys and values of the same batch.
#ifndef EBB_TESTS_MODEL_GRAPH_RUNNER_H_
#define EBB_TESTS_MODEL_GRAPH_RUNNER_H_

#include <span>
#include <vector>

#include "ebb/model.h"
#include "ebb/types.h"

namespace ebb {

struct GraphRunOptions {
  std::vector<int> output_rows;  // empty: every token
  enum class Outputs { kSome, kNone };
  Outputs outputs = Outputs::kSome;
  std::vector<int> hidden_layers;
  bool eviction_logits = false;
  bool one_token_at_a_time = false;
};

struct GraphRun {
  std::vector<float> logits;                          // [outputs, vocab_size]
  std::vector<std::vector<float>> hidden;             // as asked, [tokens, embed_dim]
  std::vector<std::vector<float>> keys;               // by layer: [tokens, kv heads, head_dim]
  std::vector<std::vector<float>> keys_before_rope;   // the same
  std::vector<std::vector<float>> queries;            // by layer: [tokens, query heads, head_dim]
  std::vector<std::vector<float>> eviction_channels;  // by layer: [tokens, kv heads]
  int num_nodes = 0;                                  // that compute something
};

// Runs a causal batch at positions 0, 1, ... on one thread.
GraphRun RunGraph(const Model& model, std::span<const Token> tokens,
                  const GraphRunOptions& options = {});

}  // namespace ebb

#endif  // EBB_TESTS_MODEL_GRAPH_RUNNER_H_
