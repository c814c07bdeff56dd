// TokenChoice chooses the next token of an answer and adds it to the answer's text: it samples,
// forces the end of a thought whose budget is used up, and applies tags and stop strings. It does
// not know where logits come from, so that a copy of it can guess tokens for a draft.
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
  // Begins a new answer. `sink` receives the text; see TextStream. REQUIRES: the options and the
  // sampler outlive this.
  TokenChoice(const GenerateOptions& options, Sampler* sampler,
              std::function<bool(std::string_view text, TextPart part)> sink);
  // Tokenizes tags and lists the tokens to mask. REQUIRES: called before all other functions.
  Status Prepare();
  // Passes the text so far to Sampler::SetText().
  void SetText(std::span<const Token> text, size_t answer_begin) {
    sampler_->SetText(text, answer_begin);
  }
  // Returns a copy of this state, with its own sampler and without a sink.
  [[nodiscard]] TokenChoice Clone() const;

  // Chooses the token at `position` from logits, [vocab_size].
  [[nodiscard]] Result<Token> Next(std::span<const float> logits, Position position);
  // Returns Sampler::margin() of the last token that Next() chose; infinity if the token was
  // forced.
  [[nodiscard]] double margin() const;
  // Returns whether this token, chosen by Next(), ends the answer. Such a token adds no text.
  [[nodiscard]] bool Ends(Token token) const;
  // Adds the token's text to the stream.
  TextStream::State Show(Token token);
  // Forces the end of the thought with the next token, as when its budget is used up.
  void EndThought() { thinking_budget_ = 0; }
  // Adds a token that an earlier choice made, of an answer that this one continues.
  TextStream::State ShowAgain(Token token);

  [[nodiscard]] TextStream& stream() { return stream_; }
  [[nodiscard]] int thought_tokens() const { return thought_tokens_; }

 private:
  void ForceEndOfThought();
  // Forces the channel marks after a thought, or before an answer that must have no thought.
  [[nodiscard]] Status ForceMarks();
  // Samples the next token under the constraints that apply now.
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
  std::unique_ptr<Sampler> own_sampler_;  // sampler of a clone; null: it is not a clone
  Sampler* sampler_;
  TextStream stream_;
  std::vector<Token> end_tokens_;  // always masked; empty unless OnEnd::kIgnore
  std::vector<Token> opening_;     // tokens of thinking_start
  std::vector<Token> early_ends_;  // masked while IsTooShort()
  int num_shown_ = 0;              // tokens of the whole answer so far
  std::vector<Token> closing_;     // tokens of thinking_end
  std::vector<Token> forced_;      // tokens still to be forced, last first
  int thinking_budget_;            // -1: no limit
  bool budget_spent_ = false;
  int thought_tokens_ = 0;   // thought tokens of the whole answer so far
  bool was_forced_ = false;  // the last token was forced
  std::vector<float> masked_logits_;
};

}  // namespace ebb

#endif  // EBB_GENERATE_TOKEN_CHOICE_H_
