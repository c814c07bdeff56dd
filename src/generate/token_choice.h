// TokenChoice chooses the next token of an answer and adds it to the answer's text. It samples,
// forces the end of a thought when its budget is spent, and applies tags and stop strings. It does
// not know where logits come from, so that a copy of it can guess ahead for a draft.
#ifndef EBB_GENERATE_TOKEN_CHOICE_H_
#define EBB_GENERATE_TOKEN_CHOICE_H_

#include <memory>
#include <span>
#include <vector>

#include "ebb/generate.h"
#include "src/generate/text_stream.h"

namespace ebb {

class TokenChoice {
 public:
  // Makes a choice for a new answer. `sink` receives the text; see TextStream. REQUIRES: the
  // options and the sampler outlive it.
  TokenChoice(const GenerateOptions& options, Sampler* sampler,
              std::function<bool(std::string_view text, TextPart part)> sink);
  // Prepare() tokenizes tags and lists the tokens to mask. REQUIRES: it is called before any other
  // function.
  Status Prepare();
  // Calls Sampler::SetText().
  void SetText(std::span<const Token> text, size_t answer_begin) {
    sampler_->SetText(text, answer_begin);
  }
  // Returns a copy in the same state, with a sampler of its own and without a sink.
  [[nodiscard]] TokenChoice Clone() const;

  // Returns the token for `position`, from logits [vocab_size].
  [[nodiscard]] Result<Token> Next(std::span<const float> logits, Position position);
  // Returns Sampler::margin() of the last token that Next() chose; infinity if the token was
  // forced.
  [[nodiscard]] double margin() const;
  // Returns whether the answer ends with this token, which Next() chose. Such a token adds no text.
  [[nodiscard]] bool Ends(Token token) const;
  // Adds the token's text to the stream.
  TextStream::State Show(Token token);
  // Ends the thought with the next token, as a budget that is spent does.
  void EndThought() { thinking_budget_ = 0; }
  // Adds a token of an answer that this one continues; an earlier choice made it.
  TextStream::State ShowAgain(Token token);

  [[nodiscard]] TextStream& stream() { return stream_; }
  [[nodiscard]] int thought_tokens() const { return thought_tokens_; }

 private:
  void ForceEndOfThought();
  // Forces the channel marks behind a thought, or in front of an answer that must have no thought.
  [[nodiscard]] Status ForceMarks();
  // Samples the next token under the constraints that hold now.
  [[nodiscard]] Result<Token> Sample(std::span<const float> logits, Position position);
  [[nodiscard]] bool MayOpenThought(Token token) const;
  [[nodiscard]] std::string TextOf(Token token) const;
  void SeeForced(Token token);
  // Returns whether the answer is shorter than GenerateOptions::min_tokens.
  [[nodiscard]] bool IsTooShort() const { return num_shown_ < options_->min_tokens; }
  [[nodiscard]] Result<Token> SampleWithout(std::span<const Token> masked,
                                            std::span<const float> logits, Position position);

  const GenerateOptions* options_;
  const Model* model_;
  std::unique_ptr<Sampler> own_sampler_;  // the sampler of a clone
  Sampler* sampler_;
  TextStream stream_;
  std::vector<Token> end_tokens_;  // masked; empty unless OnEnd::kIgnore
  std::vector<Token> opening_;     // the tokens of thinking_start
  std::vector<Token> early_ends_;  // masked while the answer is too short
  int num_shown_ = 0;              // tokens of the whole answer
  std::vector<Token> closing_;     // the tokens of thinking_end
  std::vector<Token> forced_;      // still to come, last first
  int thinking_budget_;            // -1: no limit
  bool budget_spent_ = false;
  int thought_tokens_ = 0;   // of the whole answer
  bool was_forced_ = false;  // the last token
  std::vector<float> masked_logits_;
};

}  // namespace ebb

#endif  // EBB_GENERATE_TOKEN_CHOICE_H_
