// What a GGUF file becomes in memory. Seen by src/model and by the engine's graph code only.
#ifndef EBB_MODEL_LOADED_MODEL_H_
#define EBB_MODEL_LOADED_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ebb/model.h"
#include "ebb/types.h"

struct ggml_context;
struct ggml_tensor;
struct llama_model;

namespace ebb {

struct ModelFamily;  // src/model/family.h: one row of the table of families

struct Hyperparameters {
  int num_layers = 0;
  int embed_dim = 0;
  int num_q_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int feed_forward_dim = 0;
  int vocab_size = 0;
  int trained_context = 0;
  float norm_epsilon = 0;
  float attention_scale = 0;  // 1 / sqrt(head_dim) unless the file says otherwise
  // RoPE, as ggml_rope_ext takes it.
  int rope_dims = 0;
  int rope_mode = 0;
  float rope_base = 0;
  float rope_frequency_scale = 1;
  float yarn_ext_factor = 0;
  float yarn_attn_factor = 1;
  float yarn_beta_fast = 32;
  float yarn_beta_slow = 1;
  int rope_original_context = 0;
};

// Null where the file has none.
struct LayerWeights {
  ggml_tensor* attn_norm = nullptr;
  ggml_tensor *wq = nullptr, *wk = nullptr, *wv = nullptr, *wo = nullptr;
  ggml_tensor *bq = nullptr, *bk = nullptr, *bv = nullptr, *bo = nullptr;
  ggml_tensor *q_norm = nullptr, *k_norm = nullptr;
  ggml_tensor* rope_factors = nullptr;
  ggml_tensor* ffn_norm = nullptr;
  ggml_tensor *ffn_gate = nullptr, *ffn_up = nullptr, *ffn_down = nullptr;
};

struct WeightBuffers;  // mapped file, ggml buffers and contexts; src/model/weights.h
struct LlamaModelDeleter {
  void operator()(llama_model* model) const;
};

struct LoadedModel {
  const ModelFamily* family = nullptr;
  std::string name;       // general.name
  std::string type_name;  // most frequent weight type, "Q4_1"
  Hyperparameters hparams;
  ModelShape shape;
  uint64_t weight_bytes = 0;
  uint64_t fingerprint = 0;

  ggml_tensor* token_embedding = nullptr;  // [embed_dim, vocab_size]
  ggml_tensor* output_norm = nullptr;
  ggml_tensor* output = nullptr;           // token_embedding when tied
  std::vector<LayerWeights> layers;

  std::unique_ptr<WeightBuffers> buffers;
  std::unique_ptr<llama_model, LlamaModelDeleter> vocab_model;  // vocab_only: tokenizer, template

  LoadedModel();
  ~LoadedModel();
};

}  // namespace ebb

#endif  // EBB_MODEL_LOADED_MODEL_H_
