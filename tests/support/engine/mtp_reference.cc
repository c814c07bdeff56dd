#include "tests/support/engine/mtp_reference.h"

#include <llama-ext.h>

#include <algorithm>

#include "src/base/llama_runtime.h"
#include "tests/support/engine/llama_batches.h"

namespace ebb {
Result<std::unique_ptr<MtpReference>> MtpReference::Create(const std::string& path, int context) {
  InitLlamaRuntime();
  std::unique_ptr<MtpReference> made(new MtpReference);
  llama_model_params of_model = llama_model_default_params();
  of_model.n_gpu_layers = 0;
  of_model.load_mtp = true;
  made->model_.reset(llama_model_load_from_file(path.c_str(), of_model));
  if (made->model_ == nullptr) return Internal("libllama does not load " + path);
  made->embed_dim_ = llama_model_n_embd_out(made->model_.get());
  llama_context_params params = ReferenceContextParams(context);
  made->trunk_.reset(llama_init_from_model(made->model_.get(), params));
  params.ctx_type = LLAMA_CONTEXT_TYPE_MTP;
  made->layer_.reset(llama_init_from_model(made->model_.get(), params));
  if (made->trunk_ == nullptr || made->layer_ == nullptr) {
    return Internal("libllama makes no context for " + path);
  }
  llama_set_embeddings_nextn(made->trunk_.get(), true, /*masked=*/false);
  llama_set_embeddings_nextn(made->layer_.get(), true, /*masked=*/true);
  return made;
}

Result<std::vector<float>> MtpReference::Read(std::span<const Token> tokens,
                                              std::span<const float> rows, Position first) {
  EBB_RETURN_IF_ERROR(RunBatch(layer_.get(), tokens, rows, first));
  const float* logits = llama_get_logits_ith(layer_.get(), -1);
  return std::vector<float>(logits,
                            logits + llama_vocab_n_tokens(llama_model_get_vocab(model_.get())));
}

Result<std::vector<std::vector<float>>> MtpReference::Guess(std::span<const Token> text,
                                                            int num_guesses, int shift) {
  for (llama_context* context : {trunk_.get(), layer_.get()}) {
    llama_memory_clear(llama_get_memory(context), true);
  }
  EBB_RETURN_IF_ERROR(RunBatch(trunk_.get(), text, {}, 0));
  const float* const trunk = llama_get_embeddings_nextn(trunk_.get());
  if (trunk == nullptr) return Internal("libllama gives no hidden rows");
  std::vector<float> rows(text.size() * embed_dim_);
  std::copy_n(trunk, (text.size() - shift) * embed_dim_, rows.begin() + shift * embed_dim_);
  std::vector<std::vector<float>> all;
  // Reads the last token alone, since libllama gives the first row of a batch in place of the last.
  const size_t before = text.size() - 1;
  const std::span<const float> all_rows = rows;
  EBB_RETURN_IF_ERROR(Read(text.first(before), all_rows.first(before * embed_dim_), 0).status());
  EBB_ASSIGN_OR_RETURN(std::vector<float> logits, Read(text.last(1), all_rows.last(embed_dim_),
                                                       static_cast<Position>(before)));
  all.push_back(logits);
  for (int i = 0; i < num_guesses; ++i) {
    const auto guess = static_cast<Token>(std::ranges::max_element(logits) - logits.begin());
    const float* const own = llama_get_embeddings_nextn_ith(layer_.get(), -1);
    const std::vector<float> row(own, own + embed_dim_);
    EBB_ASSIGN_OR_RETURN(logits, Read({&guess, 1}, row, static_cast<Position>(text.size()) + i));
    all.push_back(logits);
  }
  return all;
}

}  // namespace ebb
