// A grammar that an answer obeys: libllama's, and what it does not offer: text ahead of the answer,
// and whether a lazy grammar has begun to hold.
#ifndef EBB_MODEL_SAMPLING_GRAMMAR_H_
#define EBB_MODEL_SAMPLING_GRAMMAR_H_

#include <memory>
#include <regex>
#include <string>
#include <vector>

#include "ebb/sampler.h"
#include "ebb/status.h"
#include "ebb/types.h"

struct llama_sampler;
struct llama_token_data_array;

namespace ebb {

struct SamplerDeleter {
  void operator()(llama_sampler* sampler) const;
};
using SamplerPtr = std::unique_ptr<llama_sampler, SamplerDeleter>;

// Functions may throw what libllama throws.
//
// A lazy grammar waits for its triggers. Only tokens that may belong to a trigger are kept
// meanwhile, so that a token costs the length of a trigger and not that of the answer.
class Grammar {
 public:
  // REQUIRES: options.grammar is not empty. The model must outlive the grammar.
  static Result<std::unique_ptr<Grammar>> Create(const Model& model,
                                                 const SamplingOptions& options);
  [[nodiscard]] std::unique_ptr<Grammar> Clone() const;

  // It has not begun to hold.
  [[nodiscard]] bool waits() const { return waits_; }
  // Whether the token may come next. A waiting grammar refuses a token that completes a trigger
  // and goes on in a way that the grammar does not admit.
  [[nodiscard]] bool Admits(Token token) const;
  // Bars the candidates that may not come next, by logits of -infinity. Does nothing while waiting.
  void Bar(llama_token_data_array* candidates) const;
  // REQUIRES: Admits(token).
  void Accept(Token token);

 private:
  Grammar() = default;
  Status AcceptPrefix(const std::string& prefix);
  [[nodiscard]] bool IsTriggerToken(Token token) const;
  [[nodiscard]] bool HasTrigger(const std::string& text) const;
  void DropWhatCannotTrigger();

  const Model* model_ = nullptr;
  SamplerPtr sampler_;
  std::vector<std::string> texts_;    // of triggers
  std::vector<std::regex> patterns_;  // of triggers
  std::vector<Token> trigger_tokens_;
  bool waits_ = false;
  std::vector<Token>
      held_;  // while waiting: tokens that the sampler has not seen, whose texts are:
  std::string held_text_;
};

}  // namespace ebb

#endif  // EBB_MODEL_SAMPLING_GRAMMAR_H_
