// ModelDrafter guesses by a second model (EngineOptions::draft): it keeps a session of that model
// at the text of the guessing session.
#ifndef EBB_SESSION_MODEL_DRAFTER_H_
#define EBB_SESSION_MODEL_DRAFTER_H_

#include <memory>
#include <vector>

#include "ebb/engine.h"
#include "src/lossless/drafter.h"

namespace ebb {

// Returns an error that names the first difference, unless each token means the same to both
// models. Their numbers of tokens may differ by tokens of padding at the end.
[[nodiscard]] Status CheckSameVocabulary(const Model& model, const Model& draft);

class ModelDrafter : public Drafter {
 public:
  // Makes a drafter for a session whose logits are those of `vocab_size` tokens. REQUIRES: the
  // engine of `draft` outlives this.
  ModelDrafter(std::unique_ptr<Session> draft, int vocab_size);

  [[nodiscard]] Speculation source() const override { return Speculation::kModel; }
  void Rest() override;
  void ForkFrom(const Drafter& other) override;
  [[nodiscard]] bool IsBehind(std::span<const Token> text) const override;
  std::span<const float> Begin(std::span<const Token> text, Token token) override;
  std::span<const float> Append(Token guess) override;
  [[nodiscard]] size_t memory_bytes() const override;

 private:
  // Returns the draft's logits, as those of as many tokens as the guessing session's model has.
  std::span<const float> ShownLogits();

  std::unique_ptr<Session> draft_;
  size_t first_ = 0;         // the text's position of the draft's first token
  bool has_rested_ = false;  // and has read nothing since
  const size_t vocab_size_;
  std::vector<float> logits_;  // empty while both models have as many tokens
};

}  // namespace ebb

#endif  // EBB_SESSION_MODEL_DRAFTER_H_
