// A grammar that an answer obeys: a matcher, text ahead of the answer, and the triggers from which
// on a lazy grammar holds.
#ifndef EBB_MODEL_SAMPLING_GRAMMAR_H_
#define EBB_MODEL_SAMPLING_GRAMMAR_H_

#include <memory>
#include <optional>
#include <regex>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/sampler.h"
#include "ebb/status.h"
#include "ebb/types.h"
#include "src/model/sampling/grammar_matcher.h"

struct llama_token_data_array;

namespace ebb {

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
  // Returns whether the grammar admits it.
  bool Accept(Token token);
  // Returns whether the grammar takes more time or memory than a request may. It admits nothing
  // reliably then.
  [[nodiscard]] bool is_overrun() const { return matcher_->is_overrun(); }

 private:
  struct Trigger {
    std::string text;
    std::optional<std::regex> pattern;  // in place of the text
  };
  Grammar() = default;
  Status AddTrigger(const GrammarTrigger& trigger, const std::string& field);
  Status AcceptPrefix(const std::string& prefix);
  [[nodiscard]] bool IsTriggerToken(Token token) const;
  // Returns where the grammar begins in the text; nothing: no trigger is in it.
  [[nodiscard]] std::optional<size_t> FindTrigger(const std::string& text) const;
  void DropWhatCannotTrigger();

  const Model* model_ = nullptr;
  std::unique_ptr<GrammarMatcher> matcher_;
  std::vector<Trigger> triggers_;
  std::vector<Token> trigger_tokens_;
  bool waits_ = false;
  std::vector<Token>
      held_;  // while waiting: tokens that the matcher has not seen, whose texts are:
  std::string held_text_;
};

}  // namespace ebb

#endif  // EBB_MODEL_SAMPLING_GRAMMAR_H_
