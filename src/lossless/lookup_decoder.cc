#include "src/lossless/lookup_decoder.h"

#include <algorithm>
#include <new>

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

void LookupDecoder::IndexToken(Token token) try {
  if (!lookup_.has_value()) return;
  const std::span<const Token> known = sequence_.tokens();
  for (size_t i = lookup_->size() - num_predicted_; i < known.size(); ++i) {
    lookup_->Append(known[i]);
  }
  lookup_->Append(token);
} catch (const std::bad_alloc&) {
  lookup_.reset();
}

void LookupDecoder::Discard() try {
  computed_.Clear();
  if (lookup_.has_value()) lookup_->TruncateTo(num_predicted_ + sequence_.tokens().size());
} catch (const std::bad_alloc&) {
  lookup_.reset();
}

void LookupDecoder::Predict(std::span<const Token> tokens) try {
  if (tokens.empty() && num_predicted_ == 0) return;
  Discard();
  lookup_.emplace();
  for (const Token token : tokens) lookup_->Append(token);
  num_predicted_ = tokens.size();
} catch (const std::bad_alloc&) {
  lookup_.reset();
}

size_t LookupDecoder::memory_bytes() const {
  return computed_.memory_bytes() + (lookup_.has_value() ? lookup_->memory_bytes() : 0);
}

bool LookupDecoder::MayGuess() const {
  return lookup_.has_value() && lookup_->match() > 0 && times_.KnowsPlain();
}

std::optional<size_t> LookupDecoder::BestSize(int most) const {
  const Model& model = *sequence_.core()->model;
  std::optional<size_t> best;
  double best_rate = kLeastGain, tokens = 1, all_right = 1;
  int guesses = 0;
  for (size_t size = 0; size < StepTimes::kSizes.size(); ++size) {
    if (StepTimes::kSizes[size] > most) break;
    for (; guesses < StepTimes::kSizes[size] - 1; ++guesses) {
      const auto at = static_cast<size_t>(guesses);
      all_right *= model.EndsGeneration(lookup_->Next(at)) ? 0 : lookup_->ProbabilityOfNext(at);
      tokens += all_right;
    }
    const double rate = tokens / times_.Ratio(size);
    if (rate <= best_rate) continue;
    best_rate = rate;
    best = size;
  }
  return best;
}

StepOutcome LookupDecoder::Decode(Token token, int most_guesses, ShownLogits* logits) try {
  if (HasComputed(token)) return TakeComputed(token, logits);
  Discard();
  if (Status wrong = sequence_.CheckTokens({&token, 1}); !wrong.ok()) {
    return {.taken = false, .status = std::move(wrong)};
  }
  IndexToken(token);
  if (!source_ && !MayGuess()) return DecodePlainly(token, logits);
  const int most = ComputedTokens::MostTokens(
      sequence_, 1 + std::clamp(most_guesses, 0, StepTimes::kSizes.back() - 1));
  run_.assign(1, token);
  std::optional<size_t> size;
  if (source_) {
    for (const Token guess : source_(most - 1)) run_.push_back(guess);
  } else {
    size = BestSize(most);
    const int num_tokens = size.has_value() ? StepTimes::kSizes[*size] : 1;
    for (int i = 0; i + 1 < num_tokens; ++i) run_.push_back(lookup_->Next(i));
  }
  if (run_.size() == 1) return DecodePlainly(token, logits);
  const double begin = SecondsNow();
  StepOutcome outcome = DecodeAhead(logits);
  if (outcome.taken && size.has_value()) times_.Add(*size, SecondsNow() - begin);
  // Where T0 has no room for guesses, it may have room for the token.
  const bool has_room = outcome.taken || !IsLimit(outcome.status.code());
  return has_room ? outcome : DecodePlainly(token, logits);
} catch (const std::bad_alloc&) {
  return {.taken = false, .status = OutOfMemory("no memory for a step with guesses")};
}

StepOutcome LookupDecoder::TakeComputed(Token token, ShownLogits* logits) {
  IndexToken(token);
  StepOutcome outcome = computed_.Take(&sequence_);
  if (!outcome.taken) return outcome;
  ++report_.accepted;
  logits->Show(computed_.logits());
  return outcome;
}

StepOutcome LookupDecoder::DecodePlainly(Token token, ShownLogits* logits) {
  const double begin = SecondsNow();
  const SequenceStep entry = {.sequence = &sequence_, .tokens = {&token, 1}};
  const StepResult result = RunStep(sequence_.core().get(), {.entries = {&entry, 1}});
  if (!result.taken()) return result.outcome();
  logits->Show(result.logits(0));
  times_.AddPlain(SecondsNow() - begin);
  if (++plain_steps_ % kStepsToRetry == 0) times_.Age();
  return result.outcome();
}

StepOutcome LookupDecoder::DecodeAhead(ShownLogits* logits) {
  const SequenceStep entry = {.sequence = &sequence_,
                              .tokens = run_,
                              .logits = SequenceStep::Logits::kAll,
                              .ahead = &computed_};
  const StepResult result = RunStep(sequence_.core().get(), {.entries = {&entry, 1}});
  if (!result.taken()) return result.outcome();
  logits->Show(result.logits(0));
  plain_steps_ = 0;
  report_.drafted += static_cast<int64_t>(run_.size()) - 1;
  ++report_.verify_steps;
  return result.outcome();
}

}  // namespace ebb
