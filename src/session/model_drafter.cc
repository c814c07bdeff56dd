#include "src/session/model_drafter.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "ebb/generate.h"

namespace ebb {
namespace {

// kMostReadAtOnce bounds the tokens of the text that the draft reads between two steps of the
// guessing session, which waits for it.
constexpr size_t kMostReadAtOnce = 128;
// kReadAfterRest is how many of the text's last tokens the draft reads after a rest. They are read
// at once, since a draft that did not pay before will most likely not pay now.
constexpr size_t kReadAfterRest = 64;

}  // namespace

Status CheckSameVocabulary(const Model& model, const Model& draft) {
  const int num_tokens = std::min(model.shape().vocab_size, draft.shape().vocab_size);
  for (Token token = 0; token < num_tokens; ++token) {
    const std::string text = model.TokenText(token, Model::ControlTokens::kShow);
    const std::string of_draft = draft.TokenText(token, Model::ControlTokens::kShow);
    if (text != of_draft || model.IsControl(token) != draft.IsControl(token)) {
      return InvalidArgument(
          fmt::format("the draft model has another vocabulary: token {} is \"{}\", and \"{}\" in "
                      "the model",
                      token, of_draft, text));
    }
  }
  constexpr int kMostPadding = 1024;
  const int apart = std::abs(model.shape().vocab_size - draft.shape().vocab_size);
  if (apart <= kMostPadding) return OkStatus();
  return InvalidArgument(fmt::format("the draft model has {} tokens, the model {}",
                                     draft.shape().vocab_size, model.shape().vocab_size));
}

ModelDrafter::ModelDrafter(std::unique_ptr<Session> draft, int vocab_size)
    : draft_(std::move(draft)), vocab_size_(static_cast<size_t>(vocab_size)) {}

void ModelDrafter::Rest() {
  if (draft_->tokens().empty() || draft_->TruncateTo(0).ok()) has_rested_ = true;
}

void ModelDrafter::ForkFrom(const Drafter& other) {
  const auto& from = static_cast<const ModelDrafter&>(other);
  Result<std::unique_ptr<Session>> fork = from.draft_->Fork();
  if (!fork.ok()) return;  // the draft reads the text itself
  draft_ = *std::move(fork);
  first_ = from.first_;
  has_rested_ = from.has_rested_;
}

bool ModelDrafter::IsBehind(std::span<const Token> text) const {
  return !has_rested_ && first_ + draft_->tokens().size() + kMostReadAtOnce < text.size() + 1;
}

std::span<const float> ModelDrafter::Begin(std::span<const Token> text, Token token) {
  if (std::exchange(has_rested_, false)) {
    first_ = text.size() - std::min(text.size(), kReadAfterRest);
  }
  if (first_ > text.size()) first_ = 0;  // the text was rolled back
  std::vector<Token> all(text.begin() + static_cast<ptrdiff_t>(first_), text.end());
  all.push_back(token);
  const Result<std::span<const Token>> unread = KeepPrefix(all, draft_.get());
  if (!unread.ok()) return {};
  if (unread->size() == 1) return Append(token);
  const std::span<const Token> now = unread->first(std::min(unread->size(), kMostReadAtOnce));
  if (!draft_->Prefill(now).ok() || now.size() < unread->size()) return {};
  return ShownLogits();
}

std::span<const float> ModelDrafter::Append(Token guess) {
  if (!draft_->Decode(guess).ok()) return {};
  return ShownLogits();
}

std::span<const float> ModelDrafter::ShownLogits() {
  const std::span<const float> logits = draft_->logits();
  if (logits.size() == vocab_size_) return logits;
  logits_.assign(vocab_size_, -std::numeric_limits<float>::infinity());
  std::ranges::copy(logits.first(std::min(logits.size(), vocab_size_)), logits_.begin());
  return logits_;
}

size_t ModelDrafter::memory_bytes() const {
  size_t bytes = logits_.capacity() * sizeof(float);
  for (const Tier tier : {Tier::kT0, Tier::kT1, Tier::kT2}) bytes += draft_->page_bytes(tier);
  return bytes;
}

}  // namespace ebb
