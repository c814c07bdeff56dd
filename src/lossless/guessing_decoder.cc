#include "src/lossless/guessing_decoder.h"

#include <algorithm>
#include <new>
#include <utility>

#include "src/base/clock.h"
#include "src/sequence/step.h"

namespace ebb {
namespace {

// kExpectedPerToken is what a further token of a step is expected to cost, in plain steps, before
// any was measured.
constexpr double kExpectedPerToken = 0.3;
// kLeastGain is by how much guesses must be faster than a plain step to be tried.
constexpr double kLeastGain = 1.05;
// kStepsToRetry is after how many plain steps a size that was slow is tried again: a trial costs a
// few plain steps.
constexpr int kStepsToRetry = 256;

}  // namespace

GuessingDecoder::GuessingDecoder(Sequence* sequence)
    : sequence_(*sequence),
      multiplies_by_token_(!sequence->core()->model->batch_dependence().empty()),
      draft_length_(
          sequence->options().least_guesses > 0 ? 1 + sequence->options().least_guesses : 0,
          kMostTokensWithGuesses) {}

StepTimes::StepTimes() : plain_seconds_{.memory = 16} {
  for (Size& size : sizes_) size.ratio.memory = 8;
  Age();
}

void StepTimes::AddPlain(double seconds) {
  if (num_plain_++ > 0) plain_seconds_.Add(seconds);
}

void StepTimes::Add(size_t size, double seconds) {
  if (sizes_[size].num_steps++ == 0 || !KnowsPlain()) return;
  sizes_[size].ratio.Add(seconds / plain_seconds_.value());
}

void StepTimes::Age() {
  for (size_t i = 0; i < kSizes.size(); ++i) {
    Size& size = sizes_[i];
    size.ratio.WeighAtMost(0.5);
    size.ratio.Add(1 + kExpectedPerToken * (kSizes[i] - 1), 0.5);
  }
}

void GuessingDecoder::IndexToken(Token token) try {
  if (!lookup_.has_value()) return;
  const std::span<const Token> known = sequence_.tokens();
  for (size_t i = lookup_->size() - num_predicted_; i < known.size(); ++i) {
    lookup_->Append(known[i]);
  }
  lookup_->Append(token);
} catch (const std::bad_alloc&) {
  lookup_.reset();
}

void GuessingDecoder::Discard() try {
  computed_.Clear();
  is_drafted_ = false;
  if (lookup_.has_value()) lookup_->TruncateTo(num_predicted_ + sequence_.tokens().size());
} catch (const std::bad_alloc&) {
  lookup_.reset();
}

void GuessingDecoder::Predict(std::span<const Token> tokens) try {
  if (tokens.empty() && num_predicted_ == 0) return;
  Discard();
  lookup_.emplace();
  for (const Token token : tokens) lookup_->Append(token);
  num_predicted_ = tokens.size();
} catch (const std::bad_alloc&) {
  lookup_.reset();
}

size_t GuessingDecoder::memory_bytes() const {
  const size_t of_draft = drafter_ != nullptr ? drafter_->memory_bytes() : 0;
  return computed_.memory_bytes() + of_draft + (lookup_.has_value() ? lookup_->memory_bytes() : 0);
}

int GuessingDecoder::MostTokens(int most_guesses) const {
  const int allowed = std::min(sequence_.options().most_guesses, kMostTokensWithGuesses - 1);
  return ComputedTokens::MostTokens(sequence_,
                                    1 + std::clamp(most_guesses, 0, std::max(allowed, 0)));
}

double GuessingDecoder::ChanceOf(size_t i) const {
  const bool ends = sequence_.core()->model->EndsGeneration(lookup_->Next(i));
  return ends ? 0 : lookup_->ProbabilityOfNext(i);
}

std::optional<size_t> GuessingDecoder::BestSize(int most) const {
  std::optional<size_t> best;
  double best_rate = kLeastGain, tokens = 1, all_right = 1;
  int guesses = 0;
  for (size_t size = 0; size < StepTimes::kSizes.size(); ++size) {
    if (StepTimes::kSizes[size] > most) break;
    for (; guesses < StepTimes::kSizes[size] - 1; ++guesses) {
      all_right *= ChanceOf(static_cast<size_t>(guesses));
      tokens += all_right;
    }
    const double rate = tokens / times_.Ratio(size);
    if (rate <= best_rate) continue;
    best_rate = rate;
    best = size;
  }
  return best;
}

void GuessingDecoder::SetSources(bool looks_up, std::unique_ptr<Drafter> drafter) {
  if (!looks_up) lookup_.reset();
  drafter_ = std::move(drafter);
  if (drafter_ != nullptr) report_.draft_source = drafter_->source();
}

void GuessingDecoder::FollowStep() try {
  if (drafter_ != nullptr) drafter_->Follow(sequence_.tokens(), sequence_.signals().step());
} catch (const std::bad_alloc&) {
  drafter_.reset();
  is_drafted_ = false;
}

void GuessingDecoder::CountDrafted(int64_t drafted, int64_t accepted) {
  report_.drafted_by_source += drafted;
  report_.accepted_by_source += accepted;
}

std::optional<size_t> GuessingDecoder::LookUpRun(Token token, int most) {
  std::optional<size_t> size = MayGuess() ? BestSize(most) : std::nullopt;
  int num_tokens = size.has_value() ? StepTimes::kSizes[*size] : 1;
  const int least = std::min(most, 1 + sequence_.options().least_guesses);
  if (HasGuess() && num_tokens < least) {
    size.reset();
    num_tokens = least;
  }
  run_.assign(1, token);
  for (int i = 1; i < num_tokens; ++i) run_.push_back(lookup_->Next(static_cast<size_t>(i) - 1));
  return size;
}

double GuessingDecoder::DraftRun(Token token, const Guess& choose, int most) try {
  const double begin = SecondsNow();
  run_.assign(1, token);
  std::span<const float> logits = drafter_->Begin(sequence_.tokens(), token);
  while (!logits.empty()) {
    const std::optional<Guessed> next = choose(logits);
    if (!next.has_value() || !sequence_.CheckTokens({&next->token, 1}).ok()) break;
    if (sequence_.core()->model->EndsGeneration(next->token)) break;
    if (!draft_length_.Takes(next->margin)) break;
    run_.push_back(next->token);
    if (static_cast<int>(run_.size()) == most) break;
    logits = drafter_->Append(next->token);
  }
  return SecondsNow() - begin;
} catch (const std::bad_alloc&) {
  run_.resize(1);
  drafter_.reset();
  return 0;
}

void GuessingDecoder::CompareDraft() {
  if (!std::exchange(is_drafted_, false)) return;
  draft_length_.Compared(num_right_, /*next_was_wrong=*/!computed_.empty());
}

StepOutcome GuessingDecoder::Decode(Token token, const Guess& choose, int most_guesses,
                                    ShownLogits* logits) try {
  if (HasComputed(token)) return TakeComputed(token, logits);
  CompareDraft();
  Discard();
  if (Status wrong = sequence_.CheckTokens({&token, 1}); !wrong.ok()) {
    return {.taken = false, .status = std::move(wrong)};
  }
  IndexToken(token);
  const bool may_draft = drafter_ != nullptr && choose != nullptr;
  if (!source_ && !may_draft && !WantsLookup()) return DecodePlainly(token, 0, logits);
  const int most = MostTokens(most_guesses);
  std::optional<size_t> size;
  double draft_seconds = 0;
  if (source_) {
    run_.assign(1, token);
    for (const Token guess : source_(most - 1)) run_.push_back(guess);
  } else {
    size = LookUpRun(token, most);
    if (run_.size() == 1 && may_draft) {
      const int longest = draft_length_.Begin(most);
      if (longest > 1) draft_seconds = DraftRun(token, choose, longest);
    }
  }
  if (run_.size() == 1) return DecodePlainly(token, draft_seconds, logits);
  is_drafted_ = draft_seconds > 0;
  num_right_ = 0;
  const double begin = SecondsNow();
  StepOutcome outcome = DecodeAhead(logits);
  const double seconds = SecondsNow() - begin;
  if (outcome.taken && size.has_value()) times_.Add(*size, seconds);
  if (outcome.taken && drafter_ != nullptr) {
    const auto num_tokens = static_cast<int>(run_.size());
    if (is_drafted_) {
      draft_length_.DraftedStep(num_tokens, draft_seconds, seconds);
      CountDrafted(num_tokens - 1, 0);
    } else {
      draft_length_.LookedUpStep(num_tokens, seconds);
    }
  }
  // Where T0 has no room for guesses, it may have room for the token.
  const bool has_room = outcome.taken || !IsLimit(outcome.status.code());
  if (has_room) return outcome;
  is_drafted_ = false;
  return DecodePlainly(token, 0, logits);
} catch (const std::bad_alloc&) {
  return {.taken = false, .status = OutOfMemory("no memory for a step with guesses")};
}

std::vector<double> GuessingDecoder::BeginInBatch(Token token, int most_guesses) {
  Discard();
  IndexToken(token);
  std::vector<double> chances;
  if (!source_ && !HasGuess()) return chances;
  const int most = MostTokens(most_guesses);
  run_.assign(1, token);
  if (source_) {
    for (const Token guess : source_(most - 1)) run_.push_back(guess);
    chances.assign(run_.size() - 1, 1);
    return chances;
  }
  const int least = sequence_.options().least_guesses;
  double all_right = 1;
  for (int i = 0; i + 1 < (least > 0 ? std::min(most, 1 + least) : most); ++i) {
    all_right *= ChanceOf(static_cast<size_t>(i));
    if (all_right <= 0) break;
    run_.push_back(lookup_->Next(i));
    chances.push_back(all_right);
  }
  return chances;
}

SequenceStep GuessingDecoder::PartOfStep(Token token, size_t num_guesses) {
  if (num_guesses == 0) run_.assign(1, token);
  run_.resize(1 + num_guesses);
  SequenceStep part = {.sequence = &sequence_, .tokens = run_};
  if (num_guesses > 0) {
    part.logits = SequenceStep::Logits::kAll;
    part.ahead = &computed_;
  }
  return part;
}

void GuessingDecoder::EndPart(const SequenceStep& part, std::span<const float> logits,
                              ShownLogits* shown) {
  shown->Show(logits);
  FollowStep();
  if (part.ahead == nullptr) return;
  report_.drafted += static_cast<int64_t>(part.tokens.size()) - 1;
  ++report_.verify_steps;
}

StepOutcome GuessingDecoder::TakeComputed(Token token, ShownLogits* logits) {
  IndexToken(token);
  StepOutcome outcome = computed_.Take(&sequence_);
  if (!outcome.taken) return outcome;
  ++report_.accepted;
  if (is_drafted_) {
    ++num_right_;
    CountDrafted(0, 1);
  }
  logits->Show(computed_.logits());
  FollowStep();
  return outcome;
}

StepOutcome GuessingDecoder::DecodePlainly(Token token, double draft_seconds, ShownLogits* logits) {
  const double begin = SecondsNow();
  const SequenceStep entry = {.sequence = &sequence_, .tokens = {&token, 1}};
  const StepResult result = RunStep(sequence_.core().get(), {.entries = {&entry, 1}});
  if (!result.taken()) return result.outcome();
  logits->Show(result.logits(0));
  FollowStep();
  const double seconds = SecondsNow() - begin;
  times_.AddPlain(seconds);
  if (draft_seconds > 0) {
    draft_length_.DraftedStep(1, draft_seconds, seconds);
    draft_length_.Compared(0, /*next_was_wrong=*/false);
  } else if (drafter_ != nullptr) {
    draft_length_.PlainStep(seconds);
  }
  if (++plain_steps_ % kStepsToRetry == 0) times_.Age();
  return result.outcome();
}

StepOutcome GuessingDecoder::DecodeAhead(ShownLogits* logits) {
  const SequenceStep entry = PartOfStep(run_.front(), run_.size() - 1);
  const StepResult result =
      RunStep(sequence_.core().get(),
              {.entries = {&entry, 1}, .one_token_at_a_time = multiplies_by_token_});
  if (!result.taken()) return result.outcome();
  EndPart(entry, result.logits(0), logits);
  plain_steps_ = 0;
  return result.outcome();
}

}  // namespace ebb
