// Runs a model's layer for multi-token prediction (MTP) through libllama, as its speculative
// decoding does, for tests that compare with it.
#ifndef EBB_TESTS_SUPPORT_ENGINE_MTP_REFERENCE_H_
#define EBB_TESTS_SUPPORT_ENGINE_MTP_REFERENCE_H_

#include <llama.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ebb/status.h"
#include "ebb/types.h"

namespace ebb {

class MtpReference {
 public:
  static Result<std::unique_ptr<MtpReference>> Create(const std::string& path, int context);

  // Returns the layer's logits after the text, then after each guess, of which each is the
  // likeliest token of the logits before: [1 + num_guesses]. `shift`: each token is read with the
  // trunk's row of the token so many places before it; 1 is right.
  Result<std::vector<std::vector<float>>> Guess(std::span<const Token> text, int num_guesses,
                                                int shift = 1);

 private:
  struct Free {
    void operator()(llama_model* model) const { llama_model_free(model); }
    void operator()(llama_context* context) const { llama_free(context); }
  };
  MtpReference() = default;
  // Reads tokens from `first` on with these rows; returns the logits after the last.
  Result<std::vector<float>> Read(std::span<const Token> tokens, std::span<const float> rows,
                                  Position first);

  std::unique_ptr<llama_model, Free> model_;
  std::unique_ptr<llama_context, Free> trunk_, layer_;
  int embed_dim_ = 0;
};

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_ENGINE_MTP_REFERENCE_H_
