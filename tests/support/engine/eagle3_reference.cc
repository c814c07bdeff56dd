#include "tests/support/engine/eagle3_reference.h"

#include <fmt/format.h>
#include <llama-ext.h>

#include <algorithm>

#include "src/base/llama_runtime.h"
#include "tests/support/engine/llama_batches.h"

namespace ebb {

Result<std::unique_ptr<Eagle3Reference>> Eagle3Reference::Create(const std::string& target,
                                                                 const std::string& head,
                                                                 int context) {
  InitLlamaRuntime();
  std::unique_ptr<Eagle3Reference> made(new Eagle3Reference);
  llama_model_params of_model = llama_model_default_params();
  of_model.n_gpu_layers = 0;
  made->target_model_.reset(llama_model_load_from_file(target.c_str(), of_model));
  made->head_model_.reset(llama_model_load_from_file(head.c_str(), of_model));
  if (made->target_model_ == nullptr || made->head_model_ == nullptr) {
    return Internal("libllama does not load " + head);
  }
  made->target_dim_ = llama_model_n_embd(made->target_model_.get());
  made->head_dim_ = llama_model_n_embd(made->head_model_.get());
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
  llama_set_embeddings_nextn(made->head_.get(), true, /*masked=*/true);
  return made;
}

Result<std::vector<float>> Eagle3Reference::RowsOf(std::span<const Token> text) {
  EBB_RETURN_IF_ERROR(RunBatch(target_.get(), text, {}, 0));
  const std::vector<float> features = FeaturesOf(target_.get(), layers_, text.size(), target_dim_);
  llama_batch batch = BatchOfRows(features, layers_.size() * target_dim_);
  const int error = llama_encode(head_.get(), batch);
  llama_batch_free(batch);
  if (error != 0) return Internal(fmt::format("llama_encode fails with {}", error));
  const float* const rows = llama_get_embeddings_nextn(head_.get());
  if (rows == nullptr) return Internal("libllama gives no rows of features");
  return std::vector<float>(rows, rows + text.size() * head_dim_);
}

Result<std::vector<float>> Eagle3Reference::Read(std::span<const Token> tokens,
                                                 std::span<const float> rows, Position first) {
  EBB_RETURN_IF_ERROR(RunBatch(head_.get(), tokens, rows, first));
  const float* logits = llama_get_logits_ith(head_.get(), -1);
  return std::vector<float>(
      logits, logits + llama_vocab_n_tokens(llama_model_get_vocab(head_model_.get())));
}

Result<std::vector<std::vector<float>>> Eagle3Reference::Guess(std::span<const Token> text,
                                                               int num_guesses, int shift) {
  for (llama_context* context : {target_.get(), head_.get()}) {
    llama_memory_clear(llama_get_memory(context), true);
  }
  EBB_ASSIGN_OR_RETURN(const std::vector<float> of_text, RowsOf(text));
  llama_memory_clear(llama_get_memory(head_.get()), true);
  // The head reads the second token first, at position 0.
  std::vector<float> rows((text.size() - 1) * head_dim_);
  for (size_t i = 1; i < text.size(); ++i) {
    if (i < static_cast<size_t>(shift)) continue;
    std::copy_n(of_text.begin() + (i - shift) * head_dim_, head_dim_,
                rows.begin() + (i - 1) * head_dim_);
  }
  const std::span<const float> all = rows;
  const std::span<const Token> before = text.subspan(1, text.size() - 2);
  EBB_RETURN_IF_ERROR(Read(before, all.first(before.size() * head_dim_), 0).status());
  std::vector<std::vector<float>> found;
  auto position = static_cast<Position>(before.size());
  EBB_ASSIGN_OR_RETURN(std::vector<float> logits,
                       Read(text.last(1), all.last(head_dim_), position));
  found.push_back(logits);
  for (int i = 0; i < num_guesses; ++i) {
    const auto guess = static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
    const float* const own = llama_get_embeddings_nextn_ith(head_.get(), -1);
    const std::vector<float> row(own, own + head_dim_);
    EBB_ASSIGN_OR_RETURN(logits, Read({&guess, 1}, row, ++position));
    found.push_back(logits);
  }
  return found;
}

}  // namespace ebb
