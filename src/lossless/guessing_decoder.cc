#include "src/lossless/guessing_decoder.h"

#include <algorithm>
#include <cmath>
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
// kMostLost is the share of its time that a session may lose by guesses, beyond kFreeSteps plain
// steps. kGraphSeconds is about the time of building a graph.
constexpr double kMostLost = 0.02;
constexpr double kFreeSteps = 8;
constexpr double kGraphSeconds = 0.002;
// kStepsToRest is after how many tokens a drafter rests that was not wanted in a batch, or whose
// guesses had no room.
constexpr int kStepsToRest = 64;
// kFollowed is how many tokens a drafter follows before it is tried again.
constexpr int kFollowed = 32;
// kRightOnRetry is the share of right guesses that a drafter of a batch is expected to have when it
// is tried again.
constexpr double kRightOnRetry = 0.9;
// kLeastOfLookup is the least probability of a first guess of the lookup in a batch, below which
// the drafter guesses instead.
constexpr double kLeastOfLookup = 0.5;

}  // namespace

GuessingDecoder::GuessingDecoder(Sequence* sequence)
    : sequence_(*sequence),
      multiplies_by_token_(!sequence->core()->model->batch_dependence().empty()),
      draft_length_(
          sequence->options().least_guesses > 0 ? 1 + sequence->options().least_guesses : 0,
          kMostTokensWithGuesses),
      record_(sequence->core()->drafts) {
  record_.right.WeighAtMost(4);
}

double GuessAccount::SecondsToGuess(int num_new_graphs, double plain_seconds) const {
  const double for_graphs =
      num_new_graphs == 0 ? 0 : kGraphSeconds * (num_graphs_ + num_new_graphs);
  const double lost = std::max(lost_seconds_, for_graphs) - kFreeSteps * plain_seconds;
  return lost / kMostLost - seconds_;
}

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
  is_drafted_ = will_draft_ = false;
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

int GuessingDecoder::MostTokens(int most_guesses) {
  const int allowed = std::min(sequence_.options().most_guesses, kMostTokensWithGuesses - 1);
  const int wanted = 1 + std::clamp(most_guesses, 0, std::max(allowed, 0));
  const int most = ComputedTokens::MostTokens(sequence_, wanted);
  if (wanted > 1) steps_without_room_ = most > 1 ? 0 : steps_without_room_ + 1;
  return most;
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
    if (StepTimes::kSizes[size] > most || (times_.IsNew(size) && !MayCost(1))) break;
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

bool GuessingDecoder::DrafterRests() const {
  if (sequence_.options().least_guesses > 0) return false;
  if (steps_without_room_ >= kStepsToRest) return true;
  if (!is_in_batch_) {
    if (draft_length_.PlainStepsToDraft() > kFollowed) return true;
    if (!times_.KnowsPlain()) return false;
    const double plain = times_.plain_seconds();
    return account_.SecondsToGuess(GraphsToDraft(), plain) > kFollowed * plain;
  }
  return record_.idle_steps >= kStepsToRest &&
         record_.idle_steps % kStepsToRetry < kStepsToRetry - kFollowed;
}

void GuessingDecoder::CountIdle() {
  if (++record_.idle_steps % kStepsToRetry == kStepsToRetry - kFollowed / 2) {
    record_.right.WeighAtMost(1);
    record_.right.Add(kRightOnRetry);
  }
  sequence_.core()->drafts = record_;
}

void GuessingDecoder::Rest() {
  Discard();
  if (drafter_ != nullptr) drafter_->Rest();
}

void GuessingDecoder::FollowStep() try {
  if (drafter_ == nullptr) return;
  if (DrafterRests()) return drafter_->Rest();
  drafter_->Follow(sequence_.tokens(), sequence_.signals().step());
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

GuessingDecoder::DraftSeconds GuessingDecoder::DraftRun(
    Token token, const Guess& choose, int most,
    const std::function<bool(double margin)>& takes) try {
  run_.assign(1, token);
  const bool is_behind = drafter_->IsBehind(sequence_.tokens());
  const double begin = SecondsNow();
  std::span<const float> logits = drafter_->Begin(sequence_.tokens(), token);
  if (is_behind) return {};
  DraftSeconds seconds = {.first = SecondsNow() - begin};
  while (!logits.empty()) {
    const std::optional<Guessed> next = choose(logits);
    if (!next.has_value() || !sequence_.CheckTokens({&next->token, 1}).ok()) break;
    if (sequence_.core()->model->EndsGeneration(next->token)) break;
    if (!takes(next->margin)) break;
    run_.push_back(next->token);
    if (static_cast<int>(run_.size()) == most) break;
    logits = drafter_->Append(next->token);
  }
  seconds.more = SecondsNow() - begin - seconds.first;
  return seconds;
} catch (const std::bad_alloc&) {
  run_.resize(1);
  drafter_.reset();
  return {};
}

void GuessingDecoder::CompareDraft() {
  if (!std::exchange(is_drafted_, false)) return;
  const bool next_was_wrong = !computed_.empty();
  if (!is_in_batch_) return draft_length_.Compared(num_right_, next_was_wrong);
  draft_length_.ComparedUntimed(num_right_, next_was_wrong);
  for (int i = 0; i < num_right_; ++i) record_.right.Add(1);
  if (num_right_ < num_promised_) record_.right.Add(0);
  sequence_.core()->drafts = record_;
}

StepOutcome GuessingDecoder::Decode(Token token, const Guess& choose, int most_guesses,
                                    ShownLogits* logits) try {
  if (HasComputed(token)) return TakeComputed(token, logits);
  CompareDraft();
  is_in_batch_ = false;
  Discard();
  if (Status wrong = sequence_.CheckTokens({&token, 1}); !wrong.ok()) {
    return {.taken = false, .status = std::move(wrong)};
  }
  IndexToken(token);
  const bool may_draft = drafter_ != nullptr && choose != nullptr;
  if (!source_ && !may_draft && !WantsLookup()) return DecodePlainly(token, 0, logits);
  const int most = MostTokens(most_guesses);
  std::optional<size_t> size;
  DraftSeconds draft;
  if (source_) {
    run_.assign(1, token);
    for (const Token guess : source_(most - 1)) run_.push_back(guess);
  } else {
    size = LookUpRun(token, most);
    const bool is_forced = sequence_.options().least_guesses > 0;
    if (run_.size() == 1 && may_draft &&
        (is_forced || (times_.KnowsPlain() && MayCost(GraphsToDraft())))) {
      const int longest = draft_length_.Begin(most);
      const auto takes = [&](double margin) { return draft_length_.Takes(margin); };
      if (longest > 1) draft = DraftRun(token, choose, longest, takes);
    }
  }
  const double draft_seconds = draft.first + draft.more;
  if (run_.size() == 1) return DecodePlainly(token, draft_seconds, logits);
  is_drafted_ = draft_seconds > 0;
  num_right_ = 0;
  const int num_new_graphs =
      is_drafted_ ? GraphsToDraft() : (size.has_value() && times_.IsNew(*size) ? 1 : 0);
  const double begin = SecondsNow();
  StepOutcome outcome = DecodeAhead(logits);
  const double seconds = SecondsNow() - begin;
  if (outcome.taken && times_.KnowsPlain()) {
    account_.Add(draft_seconds + seconds, times_.plain_seconds());
    account_.AddGraphs(num_new_graphs);
  }
  if (outcome.taken && size.has_value()) times_.Add(*size, seconds);
  if (outcome.taken && drafter_ != nullptr) {
    const auto num_tokens = static_cast<int>(run_.size());
    if (is_drafted_) {
      draft_length_.DraftedStep(num_tokens, draft_seconds, seconds);
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

std::vector<double> GuessingDecoder::BeginInBatch(Token token, int most_guesses, bool may_draft) {
  CompareDraft();
  is_in_batch_ = true;
  Discard();
  IndexToken(token);
  std::vector<double> chances;
  const bool drafts = may_draft && drafter_ != nullptr;
  if (!source_ && !HasGuess() && !drafts) return chances;
  const int most = MostTokens(most_guesses);
  run_.assign(1, token);
  if (source_) {
    for (const Token guess : source_(most - 1)) run_.push_back(guess);
    chances.assign(run_.size() - 1, 1);
    return chances;
  }
  const int least = sequence_.options().least_guesses;
  const int longest = least > 0 ? std::min(most, 1 + least) : most;
  double all_right = 1;
  for (int i = 0; HasGuess() && i + 1 < longest; ++i) {
    all_right *= ChanceOf(static_cast<size_t>(i));
    if (all_right <= 0) break;
    run_.push_back(lookup_->Next(i));
    chances.push_back(all_right);
  }
  if (!drafts || longest == 1) return chances;
  if (!chances.empty() && (least > 0 || chances.front() >= kLeastOfLookup)) return chances;
  if (!DrafterRests() && drafter_->IsBehind(sequence_.tokens())) return chances;
  CountIdle();
  if (DrafterRests()) return chances;
  will_draft_ = true;
  run_.resize(1);
  chances.clear();
  all_right = 1;
  while (static_cast<int>(chances.size()) + 1 < longest) {
    chances.push_back(all_right *= record_.right.value());
  }
  return chances;
}

size_t GuessingDecoder::DraftInBatch(Token token, const Guess& choose, size_t num_guesses) {
  will_draft_ = false;
  // A guess is as good as was promised, or the draft ends before it.
  const double least =
      IsForced() ? 0 : std::pow(record_.right.value(), static_cast<double>(num_guesses));
  draft_length_.BeginUntimed();
  const auto takes = [&](double margin) { return draft_length_.AddUntimed(margin) >= least; };
  const DraftSeconds seconds = DraftRun(token, choose, static_cast<int>(num_guesses) + 1, takes);
  const size_t num_drafted = run_.size() - 1;
  if (num_drafted == 0) {
    record_.right.Add(0);
    return 0;
  }
  sequence_.core()->batch_times.AddDraft(seconds.first, num_drafted - 1, seconds.more);
  record_.idle_steps = 0;
  is_drafted_ = true;
  num_right_ = 0;
  num_promised_ = static_cast<int>(num_guesses);
  return num_drafted;
}

bool GuessingDecoder::ReadBehind(Token token) try {
  if (drafter_ == nullptr || DrafterRests()) return false;
  if (!drafter_->IsBehind(sequence_.tokens())) return false;
  drafter_->Begin(sequence_.tokens(), token);
  return true;
} catch (const std::bad_alloc&) {
  drafter_.reset();
  return false;
}

SequenceStep GuessingDecoder::PartOfStep(Token token, size_t num_guesses) {
  if (num_guesses == 0) {
    run_.assign(1, token);
    is_drafted_ = false;
  }
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
  if (is_drafted_) CountDrafted(static_cast<int64_t>(part.tokens.size()) - 1, 0);
}

StepOutcome GuessingDecoder::TakeComputed(Token token, ShownLogits* logits) {
  const double begin = SecondsNow();
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
  if (!is_in_batch_ && times_.KnowsPlain()) {
    account_.Add(SecondsNow() - begin, times_.plain_seconds());
  }
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
  account_.Add(draft_seconds + seconds, seconds);
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
