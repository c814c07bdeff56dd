#include "tests/support/engine/assistant_reference.h"

#include <llama-ext.h>

#include <algorithm>

#include "src/base/llama_runtime.h"
#include "tests/support/engine/llama_batches.h"

namespace ebb {

Result<std::unique_ptr<AssistantReference>> AssistantReference::Create(const std::string& target,
                                                                       const std::string& assistant,
                                                                       int context) {
  InitLlamaRuntime();
  std::unique_ptr<AssistantReference> made(new AssistantReference);
  llama_model_params of_model = llama_model_default_params();
  of_model.n_gpu_layers = 0;
  made->target_model_.reset(llama_model_load_from_file(target.c_str(), of_model));
  of_model.load_mtp = true;
  made->assistant_model_.reset(llama_model_load_from_file(assistant.c_str(), of_model));
  if (made->target_model_ == nullptr || made->assistant_model_ == nullptr) {
    return Internal("libllama does not load " + assistant);
  }
  made->embed_dim_ = llama_model_n_embd(made->target_model_.get());
  llama_context_params params = ReferenceContextParams(context);
  made->target_.reset(llama_init_from_model(made->target_model_.get(), params));
  params.ctx_other = made->target_.get();
  made->assistant_.reset(llama_init_from_model(made->assistant_model_.get(), params));
  if (made->target_ == nullptr || made->assistant_ == nullptr) {
    return Internal("libllama makes no context for " + assistant);
  }
  llama_set_embeddings_nextn(made->target_.get(), true, /*masked=*/false);
  llama_set_embeddings_nextn(made->assistant_.get(), true, /*masked=*/true);
  return made;
}

Result<std::vector<std::vector<float>>> AssistantReference::Guess(std::span<const Token> text,
                                                                  int num_guesses, int shift) {
  llama_memory_clear(llama_get_memory(target_.get()), true);
  const size_t before = text.size() - 1;
  EBB_RETURN_IF_ERROR(RunBatch(target_.get(), text.first(before), {}, 0));
  std::vector<float> row(embed_dim_);
  if (shift > 0) {
    const float* const rows = llama_get_embeddings_nextn(target_.get());
    if (rows == nullptr) return Internal("libllama gives no hidden rows");
    std::copy_n(rows + (text.size() - 1 - shift) * embed_dim_, embed_dim_, row.begin());
  }
  const size_t vocab_size = llama_vocab_n_tokens(llama_model_get_vocab(assistant_model_.get()));
  std::vector<std::vector<float>> all;
  Token token = text.back();
  for (int i = 0; i <= num_guesses; ++i) {
    // All guesses have the position of the last token.
    EBB_RETURN_IF_ERROR(
        RunBatch(assistant_.get(), {&token, 1}, row, static_cast<Position>(before)));
    const float* const logits = llama_get_logits_ith(assistant_.get(), -1);
    all.emplace_back(logits, logits + vocab_size);
    const float* const own = llama_get_embeddings_nextn_ith(assistant_.get(), -1);
    row.assign(own, own + embed_dim_);
    token = static_cast<Token>(std::ranges::max_element(all.back()) - all.back().begin());
  }
  return all;
}

}  // namespace ebb
