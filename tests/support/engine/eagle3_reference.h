// Runs an EAGLE-3 head through libllama, as its speculative decoding does, for tests that compare
// with it.
#ifndef EBB_TESTS_SUPPORT_ENGINE_EAGLE3_REFERENCE_H_
#define EBB_TESTS_SUPPORT_ENGINE_EAGLE3_REFERENCE_H_

#include <llama.h>

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ebb/status.h"
#include "ebb/types.h"

namespace ebb {

class Eagle3Reference {
 public:
  static Result<std::unique_ptr<Eagle3Reference>> Create(const std::string& target,
                                                         const std::string& head, int context);

  // Returns the head's logits after the text, then after each guess, of which each is the likeliest
  // token of the logits before: [1 + num_guesses]. `shift`: each token is read with the features of
  // the token so many places before it; 1 is right.
  Result<std::vector<std::vector<float>>> Guess(std::span<const Token> text, int num_guesses,
                                                int shift = 1);

 private:
  struct Free {
    void operator()(llama_model* model) const { llama_model_free(model); }
    void operator()(llama_context* context) const { llama_free(context); }
  };
  Eagle3Reference() = default;
  // Returns the rows that the head reads, of each token of the text.
  Result<std::vector<float>> RowsOf(std::span<const Token> text);
  // Reads tokens from `first` on with these rows; returns the logits after the last.
  Result<std::vector<float>> Read(std::span<const Token> tokens, std::span<const float> rows,
                                  Position first);

  std::unique_ptr<llama_model, Free> target_model_, head_model_;
  std::unique_ptr<llama_context, Free> target_, head_;
  std::vector<int> layers_;
  size_t target_dim_ = 0, head_dim_ = 0;
};

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_ENGINE_EAGLE3_REFERENCE_H_
