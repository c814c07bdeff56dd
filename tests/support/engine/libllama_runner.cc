#include "tests/support/engine/libllama_runner.h"

#include <fmt/format.h>

#include "src/base/llama_runtime.h"

namespace ebb {
namespace {

ggml_type GgmlType(RowType type) {
  switch (type) {
    case RowType::kF16:
      return GGML_TYPE_F16;
    case RowType::kBf16:
      return GGML_TYPE_BF16;
    case RowType::kF32:
      return GGML_TYPE_F32;
  }
  return GGML_TYPE_COUNT;
}

void SetRopeScaling(const LibllamaOptions& options, llama_context_params* params) {
  switch (options.rope_scaling) {
    case RopeScaling::kFromFile:
      return;
    case RopeScaling::kNone:
      params->rope_scaling_type = LLAMA_ROPE_SCALING_TYPE_NONE;
      return;
    case RopeScaling::kLinear:
      params->rope_scaling_type = LLAMA_ROPE_SCALING_TYPE_LINEAR;
      break;
    case RopeScaling::kYarn:
      params->rope_scaling_type = LLAMA_ROPE_SCALING_TYPE_YARN;
      break;
  }
  params->rope_freq_scale = 1 / options.rope_factor;
  params->yarn_orig_ctx = static_cast<uint32_t>(options.original_context);
}

}  // namespace

Result<std::unique_ptr<LibllamaRunner>> LibllamaRunner::Create(const LibllamaOptions& options) {
  InitLlamaRuntime();
  std::unique_ptr<LibllamaRunner> runner(new LibllamaRunner);
  llama_model_params model_params = llama_model_default_params();
  model_params.n_gpu_layers = 0;
  runner->model_.reset(llama_model_load_from_file(options.path.c_str(), model_params));
  if (runner->model_ == nullptr) {
    return Internal(fmt::format("libllama does not load {}", options.path));
  }
  llama_context_params params = llama_context_default_params();
  params.n_ctx = options.context;
  params.n_batch = options.context;
  params.n_ubatch = 512;
  params.n_threads = options.threads;
  params.n_threads_batch = options.threads;
  params.type_k = options.quantised_cache.value_or(GgmlType(options.kv_type));
  params.type_v = params.type_k;
  params.flash_attn_type = options.flash_attention == LibllamaOptions::FlashAttention::kOn
                               ? LLAMA_FLASH_ATTN_TYPE_ENABLED
                               : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  SetRopeScaling(options, &params);
  runner->context_.reset(llama_init_from_model(runner->model_.get(), params));
  if (runner->context_ == nullptr) {
    return Internal(fmt::format("libllama makes no context for {}", options.path));
  }
  return runner;
}

int LibllamaRunner::vocab_size() const {
  return llama_vocab_n_tokens(llama_model_get_vocab(model_.get()));
}

void LibllamaRunner::Forget() {
  llama_memory_clear(llama_get_memory(context_.get()), true);
  next_ = 0;
}

Result<std::vector<float>> LibllamaRunner::Append(std::span<const Token> tokens) {
  llama_batch batch = llama_batch_init(static_cast<int32_t>(tokens.size()), 0, 1);
  batch.n_tokens = static_cast<int32_t>(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    batch.token[i] = tokens[i];
    batch.pos[i] = next_++;
    batch.n_seq_id[i] = 1;
    batch.seq_id[i][0] = 0;
    batch.logits[i] = 1;
  }
  const int error = llama_decode(context_.get(), batch);
  llama_batch_free(batch);
  if (error != 0) return Internal(fmt::format("llama_decode fails with {}", error));
  const float* logits = llama_get_logits(context_.get());
  return std::vector<float>(logits, logits + tokens.size() * vocab_size());
}

}  // namespace ebb
