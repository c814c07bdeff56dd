#include <utility>

#include "src/sequence/session_body.h"

namespace ebb {
namespace {

class PlainBody final : public SessionBody {
 public:
  explicit PlainBody(std::unique_ptr<Sequence> sequence) : sequence_(std::move(sequence)) {}

  Sequence& sequence() override { return *sequence_; }
  Status CheckUnbroken() const override { return sequence_->health().CheckUnbroken(); }
  Status CheckPrompt(size_t num_tokens) override { return sequence_->CheckPrompt(num_tokens); }
  size_t MaxPrefillChunk(size_t num_tokens) override {
    return sequence_->MaxPrefillChunk(num_tokens);
  }
  bool ReadsTokenByToken() const override { return sequence_->ReadsTokenByToken(); }
  Result<SequenceStep> PromptEntry() override {
    return SequenceStep{.sequence = sequence_.get(), .kind = StepKind::kPrefill};
  }
  StepOutcome Decode(Token token, const Guess&, int, ShownLogits* logits) override {
    const SequenceStep entry = {.sequence = sequence_.get(), .tokens = {&token, 1}};
    const StepResult result = RunStep(sequence_->core().get(), {.entries = {&entry, 1}});
    if (result.taken()) logits->Show(result.logits(0));
    return result.outcome();
  }
  Result<std::optional<SequenceStep>> BeginDecode(Token, ShownLogits*) override {
    return std::optional(SequenceStep{.sequence = sequence_.get()});
  }
  void TruncateTo(Position end) override { sequence_->TruncateTo(end); }
  Status SetT0Share(double share) override { return sequence_->SetT0Share(share); }
  Status Park() override {
    if (!sequence_->cache().HasTier(Tier::kT1)) {
      return InvalidArgument("a session without T1 has no place to park its rows in");
    }
    EBB_RETURN_IF_ERROR(sequence_->CheckBelowT0());
    return sequence_->Park();
  }
  Status ForkFrom(SessionBody* other) override {
    return sequence_->ForkFrom(static_cast<PlainBody*>(other)->sequence_.get());
  }
  size_t ShareablePrefixLength(std::span<const Token> prompt) override {
    return sequence_->ShareablePrefixLength(prompt);
  }
  Status AdoptPrefix(SessionBody* other, Position end) override {
    return sequence_->AdoptPrefix(static_cast<PlainBody*>(other)->sequence_.get(), end);
  }
  CacheAccounting accounting() override { return sequence_->accounting(); }
  size_t page_bytes(Tier tier) override { return sequence_->cache().page_bytes(tier); }
  std::string KeptRows() const override { return "those of the policy"; }
  std::vector<SequenceCache*> caches() override { return {&sequence_->cache()}; }

 private:
  const std::unique_ptr<Sequence> sequence_;
};

}  // namespace

std::unique_ptr<SessionBody> MakePlainBody(std::unique_ptr<Sequence> sequence) {
  return std::make_unique<PlainBody>(std::move(sequence));
}

}  // namespace ebb
