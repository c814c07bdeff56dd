// Chooses the next token of an answer, and applies it to the text: sampling, the end of a thought
// that is forced when its budget is spent, tags and stop strings. It does not know where logits
// come from: a copy of it can guess ahead.
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
  // The options and the sampler outlive it. `sink` takes the text; see TextStream.
  TokenChoice(const GenerateOptions& options, Sampler* sampler,
              std::function<bool(std::string_view text, TextPart part)> sink);
  // REQUIRED before any other call.
  Status Prepare();
  // Calls Sampler::SetText().
  void SetText(std::span<const Token> text, size_t answer_begin) {
    sampler_->SetText(text, answer_begin);
  }
  // One that stands where this one does, with a sampler of its own and without a sink.
  [[nodiscard]] TokenChoice Clone() const;

  // The token for `position`, from logits [vocab_size].
  [[nodiscard]] Result<Token> Next(std::span<const float> logits, Position position);
  // Sampler::margin() of the last token that Next() chose; infinity for one that was forced.
  [[nodiscard]] double margin() const;
  // Whether the answer ends with this token, which Next() chose, and which has no text then.
  [[nodiscard]] bool Ends(Token token) const;
  // Adds its text.
  TextStream::State Show(Token token);
  // The thought's budget is spent.
  void EndThought() { thinking_budget_ = 0; }
  // Adds a token of an answer so far, that was chosen before.
  TextStream::State ShowAgain(Token token);

  [[nodiscard]] TextStream& stream() { return stream_; }
  [[nodiscard]] int thought_tokens() const { return thought_tokens_; }

 private:
  void ForceEndOfThought();
  // Forces the marks behind a thought, or in front of an answer that must have none.
  [[nodiscard]] Status ForceMarks();
  // Samples the next token under the current constraints.
  [[nodiscard]] Result<Token> Sample(std::span<const float> logits, Position position);
  [[nodiscard]] bool MayOpenThought(Token token) const;
  [[nodiscard]] std::string TextOf(Token token) const;
  void SeeForced(Token token);
  // Whether the answer is shorter than its options ask for.
  [[nodiscard]] bool IsTooShort() const { return num_shown_ < options_->min_tokens; }
  [[nodiscard]] Result<Token> SampleWithout(std::span<const Token> masked,
                                            std::span<const float> logits, Position position);

  const GenerateOptions* options_;
  const Model* model_;
  std::unique_ptr<Sampler> own_sampler_;  // of a clone
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
