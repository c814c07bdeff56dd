// Runs an assistant of a Gemma 4 model through libllama, as its speculative decoding does, for
// tests that compare with it.
#ifndef EBB_TESTS_SUPPORT_ENGINE_ASSISTANT_REFERENCE_H_
#define EBB_TESTS_SUPPORT_ENGINE_ASSISTANT_REFERENCE_H_

#include <llama.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ebb/status.h"
#include "ebb/types.h"

namespace ebb {

class AssistantReference {
 public:
  static Result<std::unique_ptr<AssistantReference>> Create(const std::string& target,
                                                            const std::string& assistant,
                                                            int context);

  // Returns the assistant's logits after the text, then after each guess, of which each is the
  // likeliest token of the logits before: [1 + num_guesses]. `shift`: the last token is read with
  // the hidden row of the token so many places before it; 1 is right. 0: with no row.
  Result<std::vector<std::vector<float>>> Guess(std::span<const Token> text, int num_guesses,
                                                int shift = 1);

 private:
  struct Free {
    void operator()(llama_model* model) const { llama_model_free(model); }
    void operator()(llama_context* context) const { llama_free(context); }
  };
  AssistantReference() = default;

  std::unique_ptr<llama_model, Free> target_model_, assistant_model_;
  std::unique_ptr<llama_context, Free> target_, assistant_;
  size_t embed_dim_ = 0;
};

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_ENGINE_ASSISTANT_REFERENCE_H_
