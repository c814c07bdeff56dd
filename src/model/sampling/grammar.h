// Holds a grammar that an answer must obey: a matcher, the text before the answer, and the triggers
// after which a lazy grammar becomes active.
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

// Grammar constrains an answer. A lazy grammar waits for its triggers; until then it stores only
// tokens that may belong to a trigger, so that a token costs time in proportion to a trigger and
// not to the answer.
class Grammar {
 public:
  // Makes a grammar. REQUIRES: options.grammar is not empty; the model outlives the grammar.
  static Result<std::unique_ptr<Grammar>> Create(const Model& model,
                                                 const SamplingOptions& options);
  [[nodiscard]] std::unique_ptr<Grammar> Clone() const;

  // Returns whether a lazy grammar is still waiting for a trigger.
  [[nodiscard]] bool waits() const { return waits_; }
  // Returns whether the token may come next. A waiting grammar refuses a token that completes a
  // trigger and then continues with text that the grammar does not admit.
  [[nodiscard]] bool Admits(Token token) const;
  // Sets the logits of candidates that may not come next to -infinity. Does nothing while waiting.
  void Bar(llama_token_data_array* candidates) const;
  // Appends a token. Returns whether the grammar admits it.
  bool Accept(Token token);
  // Returns whether the grammar exceeded the time or memory of a request; its other results are
  // then unreliable.
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
  // Returns the offset at which the grammar begins in the text; nullopt: the text has no trigger.
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
