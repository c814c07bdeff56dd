#include "tests/support/engine/dflash_reference.h"

#include <fmt/format.h>
#include <llama-ext.h>

#include <algorithm>

#include "src/base/llama_runtime.h"
#include "tests/support/engine/llama_batches.h"

namespace ebb {

Result<std::unique_ptr<DflashReference>> DflashReference::Create(const std::string& target,
                                                                 const std::string& head,
                                                                 int block_size, int context) {
  InitLlamaRuntime();
  std::unique_ptr<DflashReference> made(new DflashReference);
  made->block_size_ = block_size;
  llama_model_params of_model = llama_model_default_params();
  of_model.n_gpu_layers = 0;
  made->target_model_.reset(llama_model_load_from_file(target.c_str(), of_model));
  made->head_model_.reset(llama_model_load_from_file(head.c_str(), of_model));
  if (made->target_model_ == nullptr || made->head_model_ == nullptr) {
    return Internal("libllama does not load " + head);
  }
  made->embed_dim_ = llama_model_n_embd(made->target_model_.get());
  llama_context_params params = ReferenceContextParams(context);
  made->target_.reset(llama_init_from_model(made->target_model_.get(), params));
  params.ctx_other = made->target_.get();
  made->head_.reset(llama_init_from_model(made->head_model_.get(), params));
  if (made->target_ == nullptr || made->head_ == nullptr) {
    return Internal("libllama makes no context for " + head);
  }
  const llama_model* const model = made->head_model_.get();
  const int32_t* const layers = llama_model_target_layer_ids(model);
  made->layers_.assign(layers, layers + llama_model_target_layer_ids_n(model));
  for (const int layer : made->layers_) {
    llama_set_embeddings_layer_inp(made->target_.get(), layer, true);
  }
  llama_set_causal_attn(made->head_.get(), false);
  return made;
}

Result<std::vector<std::vector<float>>> DflashReference::Guess(std::span<const Token> text,
                                                               int num_guesses, int shift) {
  for (llama_context* context : {target_.get(), head_.get()}) {
    llama_memory_clear(llama_get_memory(context), true);
  }
  const size_t before = text.size() - 1, floats = layers_.size() * embed_dim_;
  EBB_RETURN_IF_ERROR(RunBatch(target_.get(), text.first(before), {}, 0));
  const std::vector<float> own = FeaturesOf(target_.get(), layers_, before, embed_dim_);
  std::vector<float> features(own.size());
  for (int i = 0; i < static_cast<int>(before); ++i) {
    const int from = i - (shift - 1);
    if (from < 0 || from >= static_cast<int>(before)) continue;
    std::copy_n(own.begin() + from * floats, floats, features.begin() + i * floats);
  }
  llama_batch rows = BatchOfRows(features, floats);
  int error = llama_decode(head_.get(), rows);
  llama_batch_free(rows);
  if (error != 0) return Internal(fmt::format("llama_decode fails with {}", error));
  const llama_vocab* const vocab = llama_model_get_vocab(head_model_.get());
  llama_batch block = llama_batch_init(block_size_, 0, 1);
  block.n_tokens = block_size_;
  for (int i = 0; i < block_size_; ++i) {
    block.token[i] = i == 0 ? text.back() : llama_vocab_mask(vocab);
    block.pos[i] = static_cast<Position>(before) + i;
    block.n_seq_id[i] = 1;
    block.seq_id[i][0] = 0;
    block.logits[i] = 1;
  }
  error = llama_decode(head_.get(), block);
  llama_batch_free(block);
  if (error != 0) return Internal(fmt::format("llama_decode fails with {}", error));
  std::vector<std::vector<float>> all;
  for (int i = 1; i <= 1 + num_guesses; ++i) {
    const float* const logits = llama_get_logits_ith(head_.get(), i);
    all.emplace_back(logits, logits + llama_vocab_n_tokens(vocab));
  }
  return all;
}

}  // namespace ebb
