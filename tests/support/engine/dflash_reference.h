// Runs a DFlash head through libllama, as its speculative decoding does, for tests that compare
// with it.
#ifndef EBB_TESTS_SUPPORT_ENGINE_DFLASH_REFERENCE_H_
#define EBB_TESTS_SUPPORT_ENGINE_DFLASH_REFERENCE_H_

#include <llama.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ebb/status.h"
#include "ebb/types.h"

namespace ebb {

class DflashReference {
 public:
  static Result<std::unique_ptr<DflashReference>> Create(const std::string& target,
                                                         const std::string& head, int block_size,
                                                         int context);

  // Returns the logits of the guesses after the text, [1 + num_guesses]. `shift`: the rows of each
  // token are made from the features of the token shift - 1 places before it; 1 is right.
  Result<std::vector<std::vector<float>>> Guess(std::span<const Token> text, int num_guesses,
                                                int shift = 1);

 private:
  struct Free {
    void operator()(llama_model* model) const { llama_model_free(model); }
    void operator()(llama_context* context) const { llama_free(context); }
  };
  DflashReference() = default;

  std::unique_ptr<llama_model, Free> target_model_, head_model_;
  std::unique_ptr<llama_context, Free> target_, head_;
  std::vector<int> layers_;
  size_t embed_dim_ = 0;
  int block_size_ = 0;
};

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_ENGINE_DFLASH_REFERENCE_H_
