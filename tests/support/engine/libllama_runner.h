// Runs a model through libllama, whose logits the tests compare with.
#ifndef EBB_TESTS_SUPPORT_ENGINE_LIBLLAMA_RUNNER_H_
#define EBB_TESTS_SUPPORT_ENGINE_LIBLLAMA_RUNNER_H_

#include <llama.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ebb/model.h"
#include "ebb/status.h"
#include "ebb/types.h"

namespace ebb {

struct LibllamaOptions {
  std::string path;
  int threads = 1;
  int context = 2048;  // tokens
  RowType kv_type = RowType::kF32;
  std::optional<ggml_type> quantised_cache;  // instead; needs flash attention
  enum class FlashAttention { kOff, kOn };
  FlashAttention flash_attention = FlashAttention::kOff;
  // As ModelOptions has it; original_context is needed by kYarn.
  RopeScaling rope_scaling = RopeScaling::kFromFile;
  float rope_factor = 0;
  int original_context = 0;
};

class LibllamaRunner {
 public:
  static Result<std::unique_ptr<LibllamaRunner>> Create(const LibllamaOptions& options);

  void Forget();  // all tokens
  // Appends the tokens in one batch and returns the logits after each: [tokens, vocab_size].
  Result<std::vector<float>> Append(std::span<const Token> tokens);
  [[nodiscard]] int vocab_size() const;

 private:
  struct Free {
    void operator()(llama_model* model) const { llama_model_free(model); }
    void operator()(llama_context* context) const { llama_free(context); }
  };
  LibllamaRunner() = default;

  std::unique_ptr<llama_model, Free> model_;
  std::unique_ptr<llama_context, Free> context_;
  Position next_ = 0;
};

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_ENGINE_LIBLLAMA_RUNNER_H_
