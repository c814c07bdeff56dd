#include "src/lossless/speculator.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "src/base/clock.h"
#include "src/lossless/store_placement.h"

namespace ebb {
namespace {

// kLookedUpBetweenDrafts is how many right guesses of the lookup may follow each other before one
// step is drafted, or plain, all the same, so that the rates of such steps stay known.
constexpr int kLookedUpBetweenDrafts = 512;

// Returns for how many tokens logits are computed at once. Several tokens share one pass over the
// weights, unless exact verifying computes each token alone.
size_t LogitsAtOnce(bool one_token_at_a_time) { return one_token_at_a_time ? 1 : 4; }

SignalNeeds OnlyMass(const SignalNeeds& needs) {
  return {.mass = needs.mass, .mass_in_prefill = needs.mass_in_prefill};
}

// Returns how many rows the last step of `sequence` read.
int64_t RowsRead(const Sequence& sequence) {
  int64_t rows = sequence.report().rows_evicted - sequence.report().rows_unread;
  for (const TierAccounting& tier : sequence.cache().accounting().tiers) rows += tier.rows;
  return rows;
}

constexpr std::string_view kDraftName = "the draft, which has T0 and T2 alone";

Status CheckOptions(const LosslessOptions& options) {
  if (options.draft_min >= 0 && options.draft_max >= 1 && options.draft_min <= options.draft_max &&
      options.draft_max <= kMostDrafted) {
    return OkStatus();
  }
  return InvalidArgument(fmt::format(
      "verifying steps of at least {} and at most {} tokens; expected 0 to {}, the smaller number "
      "first, and room for one",
      options.draft_min, options.draft_max, kMostDrafted));
}

bool HasT1(const CacheStores& stores) { return stores.t1 != nullptr || stores.t1_file != nullptr; }

Status CheckDraft(const Sequence& draft) {
  if (!draft.RotatesKeys()) return OkStatus();
  return InvalidArgument(
      fmt::format("{} re-rotates keys, which a lossless session cannot do: its draft has the key "
                  "positions of the full cache",
                  draft.options().past_context == PastContext::kReRotate
                      ? std::string("going on past the context")
                      : fmt::format("policy \"{}\"", draft.policy().name)));
}

// Checks that the engine's tiers and its device can verify.
Status CheckEngine(const EngineCore& core, const LosslessOptions& options) {
  const Device& device = *core.stores.device();
  if (options.verify == LosslessOptions::Verify::kExact && device.IsClosed()) {
    return Unsupported(
        fmt::format("lossless.verify exact: device {} has other bits for several tokens of a step "
                    "than for one, so that verifying them together is exact up to rounding only; "
                    "choose fast",
                    device.name()));
  }
  const std::optional<EngineTiers>& tiers = core.options.tiers;
  if (!HasT1(core.stores.caches(CacheUse::kStore)) && tiers.has_value() &&
      tiers->t0_cap_bytes > 0) {
    return InvalidArgument(
        "a cap on T0 needs a T1 in a lossless session: T0 has to hold the draft alone");
  }
  return OkStatus();
}

}  // namespace

CacheUse CacheUseOf(const SessionOptions& session) {
  const bool has_draft = session.lossless.has_value() && !ReadsSelectively(session.policy.tiers);
  return has_draft ? CacheUse::kDraft : CacheUse::kSession;
}

std::optional<PolicyTiers> TiersOfPolicy(const EngineOptions& engine,
                                         const SessionOptions& session) {
  const std::optional<TierSetting> own = TiersOf(engine, session);
  if (!own.has_value()) return std::nullopt;
  PolicyTiers of_policy = {.tiers = *own};
  auto& [tiers, shares] = of_policy.tiers;
  if (CacheUseOf(session) == CacheUse::kSession) return of_policy;
  tiers.t1 = T1Place::kNone;
  tiers.t1_cap_bytes = 0;
  if (CompressesOldRows(shares)) return of_policy;
  // Rows that would lie in T1 are evicted, unless the policy itself says which rows stay.
  if (!EvictsByItself(session.policy, engine.policies.get())) {
    const double stays = 1 - shares.evict_share;
    const double in_t2 = stays * shares.t2_share;
    const double in_t0 = stays * (1 - shares.t2_share) * shares.t0_share.value_or(1);
    shares.evict_share = std::max(1 - in_t0 - in_t2, 0.0);
    // A share of the rows alive would evict more rows of T1 at each interval.
    shares.evict_of = EvictOf::kGenerated;
    shares.t2_share = in_t0 + in_t2 > 0 ? in_t2 / (in_t0 + in_t2) : 0;
  }
  if (tiers.t0_cap_bytes > 0) {
    shares.evict_beyond_caps = true;
    of_policy.protected_rows = Protected::kMayGo;
  }
  return of_policy;
}

Speculator::Speculator(const LosslessOptions& options, Sequence* draft,
                       std::unique_ptr<Sequence> second)
    : options_(options),
      draft_(draft),
      second_(std::move(second)),
      store_(second_ != nullptr ? second_.get() : draft_),
      draft_takes_step_{.sequence = draft_,
                        .cache = &draft_->cache(),
                        .signals = &draft_->signals(),
                        .name = kDraftName},
      draft_takes_rows_{.sequence = draft_, .cache = &draft_->cache(), .name = kDraftName},
      store_signals_(core().model->shape(), draft_->policy().granularity,
                     OnlyMass(draft_->signals().needs())),
      length_(options.draft_min, options.draft_max) {
  if (options.looks_up && options.draft_min < options.draft_max) lookup_.emplace();
}

Result<std::unique_ptr<Speculator>> Speculator::Create(const LosslessOptions& options,
                                                       Sequence* draft) {
  EBB_RETURN_IF_ERROR(CheckOptions(options));
  EBB_RETURN_IF_ERROR(CheckDraft(*draft));
  const EngineCore& core = *draft->core();
  EBB_RETURN_IF_ERROR(CheckEngine(core, options));
  if (CacheUseOf(draft->options()) == CacheUse::kSession) {
    return std::unique_ptr<Speculator>(new Speculator(options, draft, nullptr));
  }
  const CacheStores stores = core.stores.caches(CacheUse::kStore);
  EBB_ASSIGN_OR_RETURN(Policy policy, MakePolicy({.name = "full"}, {.shape = core.model->shape()}));
  if (HasT1(stores)) policy.placement = MakeStorePlacement();
  auto store =
      std::make_unique<Sequence>(draft->core(), SessionOptions{.context = draft->options().context},
                                 std::move(policy), stores);
  store->cache().BorrowFrom(&draft->cache());
  return std::unique_ptr<Speculator>(new Speculator(options, draft, std::move(store)));
}

Status Speculator::CheckPrompt(size_t num_tokens) const {
  if (IsOneSequence()) return draft_->CheckPrompt(num_tokens);
  return OfFollower(kDraftName, draft_->CheckPrompt(num_tokens));
}

SequenceStep Speculator::FollowedEntry() {
  if (IsOneSequence()) return {.sequence = store_, .reads_all_rows = true};
  return {.sequence = store_, .followers = {&draft_takes_step_, 1}, .signals = &store_signals_};
}

Result<SequenceStep> Speculator::PromptEntry() {
  EBB_RETURN_IF_ERROR(store_->MoveRefused());
  SequenceStep entry = FollowedEntry();
  entry.kind = StepKind::kPrefill;
  return entry;
}

// Leaves out the rows that the draft evicted, which the store holds. If the store has a T1, its
// newest rows, which are not in T1 yet, count as staging.
CacheAccounting Speculator::accounting() const {
  constexpr auto kT0 = static_cast<size_t>(Tier::kT0), kT1 = static_cast<size_t>(Tier::kT1);
  CacheAccounting sum = draft_->accounting();
  if (lookup_.has_value()) sum.table_bytes += lookup_->memory_bytes();
  if (IsOneSequence()) return sum;
  const CacheAccounting store = store_->cache().accounting();
  sum.tiers[kT1] = store.tiers[kT1];
  sum.staging_bytes += store.staging_bytes;
  if (store_->cache().HasTier(Tier::kT1) || store_->cache().HasTier(Tier::kT2)) {
    sum.newest = store.tiers[kT0];
    sum.staging_bytes += store.tiers[kT0].page_bytes;
  } else {
    sum.tiers[kT0].rows += store.tiers[kT0].rows;
    sum.tiers[kT0].row_bytes += store.tiers[kT0].row_bytes;
    sum.tiers[kT0].page_bytes += store.tiers[kT0].page_bytes;
    sum.tiers[kT0].shared_page_bytes += store.tiers[kT0].shared_page_bytes;
    sum.tiers[kT0].fair_page_bytes += store.tiers[kT0].fair_page_bytes;
  }
  sum.table_bytes += store.table_bytes;
  sum.num_tables += store.num_tables;
  sum.rows_evicted = 0;
  sum.moves.rows_down += store.moves.rows_down;
  sum.moves.bytes_down += store.moves.bytes_down;
  sum.moves.seconds += store.moves.seconds;
  sum.moves.seconds_down += store.moves.seconds_down;
  return sum;
}

std::string Speculator::KeptRows() const {
  const std::optional<EngineTiers>& tiers = core().options.tiers;
  return fmt::format("all, verify: {}, T1: {}", VerifyName(options_.verify),
                     T1PlaceName(tiers.has_value() ? *tiers->t1 : T1Place::kNone));
}

int Speculator::Limit(int most_guesses) const {
  const int longest = 1 + std::clamp(most_guesses, 0, options_.draft_max - 1);
  int most = 1;
  while (most < longest && draft_->HasRoom(most + 1)) ++most;
  return most;
}

// Adds to the lookup the tokens that a prompt or a file brought, and then the token.
void Speculator::IndexToken(Token token) try {
  if (!lookup_.has_value()) return;
  const auto known = draft_->tokens().first(draft_->tokens().size() - num_verified_ahead());
  for (size_t i = lookup_->size(); i < known.size(); ++i) lookup_->Append(known[i]);
  lookup_->Append(token);
} catch (const std::bad_alloc&) {
  lookup_.reset();
}

void Speculator::TruncateIndex(Position end) try {
  if (lookup_.has_value()) lookup_->TruncateTo(end);
} catch (const std::bad_alloc&) {
  lookup_.reset();
}

int Speculator::NumLookedUp(int limit) const {
  if (!lookup_.has_value() || lookup_->match() == 0 || !length_.KnowsSteps()) return 0;
  if (looked_up_since_draft_ >= kLookedUpBetweenDrafts) return 0;
  size_t most = limit - 1;
  most = std::min<size_t>(most, draft_->LongestStep() - 1);
  if (draft_->settler().CapsMayBind()) {
    most = std::min(most, std::max<size_t>(draft_->cache().RoomForTokens(), 1) - 1);
  }
  const Model& model = *core().model;
  for (size_t i = 0; i < most; ++i) {
    if (model.EndsGeneration(lookup_->Next(i))) most = i;
  }
  const size_t num_guesses =
      lookup_->NumWorthIt(most, length_.Rate(), [this](int num_tokens, double num_taken) {
        return length_.VerifySeconds(num_tokens, num_taken);
      });
  return 1 + static_cast<int>(num_guesses) < options_.draft_min ? 0 : static_cast<int>(num_guesses);
}

Status Speculator::Resume() {
  if (IsOneSequence()) return OkStatus();
  const auto positions = store_->cache().positions(0);
  for (size_t i = 0; i < std::max(positions.size(), draft_->tokens().size()); ++i) {
    if (i < positions.size() && positions[i] == static_cast<Position>(i)) continue;
    return Corrupt(fmt::format("the store lacks the row of token {}", i));
  }
  store_->TakeTokensOf(*draft_, draft_->next());
  return OkStatus();
}

Status Speculator::CheckT0ShareMayChange() const {
  if (IsOneSequence()) return OkStatus();
  return InvalidArgument(
      "the share of T0 cannot change in a lossless session, whose draft is the rows of T0");
}

Status Speculator::CheckMayPark() const {
  if (IsOneSequence()) return OkStatus();
  return InvalidArgument("a lossless session cannot be parked; save it to a file instead");
}

Status Speculator::ForkFrom(const Speculator& other) {
  if (IsOneSequence()) return OkStatus();
  EBB_RETURN_IF_ERROR(store_->cache().ForkFrom(&other.store_->cache()));
  return Resume();
}

void Speculator::TruncateTo(Position end) {
  draft_->TruncateTo(end);
  if (!IsOneSequence()) second_->TruncateTo(end);
  TruncateIndex(end);
}

void Speculator::DiscardLookahead() {
  const Position end = store_->next() - static_cast<Position>(num_verified_ahead());
  if (num_verified_ahead() > 0) TruncateTo(end);
  ahead_.clear();
  next_ahead_ = 0;
  TruncateIndex(end);  // what a step that failed was to add, too
}

void Speculator::CountComparison(bool right) {
  if (right) ++report_.accepted;
  if (is_looked_up_) {
    if (right) ++report_.accepted_looked_up, ++looked_up_since_draft_;
    return;
  }
  // Record the comparison if it ends the run: a wrong guess, or the run's last one.
  if (!right || num_verified_ahead() == 0) length_.Compared(static_cast<int>(next_ahead_), !right);
}

void Speculator::CountVerifying(double seconds, double waited_before) {
  ++report_.verify_steps;
  report_.verify_seconds += seconds;
  report_.wait_seconds += store_->cache().t1_reader().wait_seconds() - waited_before;
  report_.bytes_read += store_->cache().t1_reader().bytes_read();
  report_.rows_read += RowsRead(*store_);
}

void Speculator::CountLogits(double seconds) {
  const size_t vocab_size = core().model->shape().vocab_size;
  length_.LogitsStep(static_cast<int>(logits_.size() / vocab_size), seconds);
  report_.verify_seconds += seconds;
}

Result<bool> Speculator::HasCachedLogits(Token token) {
  if (num_verified_ahead() == 0 || ahead_[next_ahead_] != token) return false;
  if (!HasLogitsAfter(next_ahead_ + 1)) {
    const double begin = SecondsNow();
    EBB_RETURN_IF_ERROR(ComputeLogits(next_ahead_ + 1));
    CountLogits(SecondsNow() - begin);
  }
  EBB_RETURN_IF_ERROR(CheckFinite(LogitsAfter(next_ahead_ + 1), core().options.kv_type));
  return true;
}

Result<bool> Speculator::TakeAhead(Token token, ShownLogits* logits) {
  EBB_RETURN_IF_ERROR(draft_->CheckTokens({&token, 1}));
  if (num_verified_ahead() > 0) {
    EBB_ASSIGN_OR_RETURN(const bool right, HasCachedLogits(token));
    if (right) {
      IndexToken(token);
      ++next_ahead_;
      logits->Show(LogitsAfter(next_ahead_));
    }
    CountComparison(right);
    if (right) return true;
  }
  DiscardLookahead();
  IndexToken(token);
  return false;
}

// Does not record the step's time in length_, since it is the time of the whole batch.
Result<std::optional<SequenceStep>> Speculator::BeginDecode(Token token, ShownLogits* logits) {
  EBB_ASSIGN_OR_RETURN(const bool was_ahead, TakeAhead(token, logits));
  if (was_ahead) return std::optional<SequenceStep>();
  EBB_RETURN_IF_ERROR(store_->MoveRefused());
  waited_before_batch_ = store_->cache().t1_reader().wait_seconds();
  return std::optional(FollowedEntry());
}

void Speculator::EndDecode() {
  looked_up_since_draft_ = 0;
  CountVerifying(0, waited_before_batch_);
}

StepOutcome Speculator::Decode(Token token, const Guess& guess, int most_guesses,
                               ShownLogits* logits) {
  const Result<bool> was_ahead = TakeAhead(token, logits);
  if (!was_ahead.ok()) return {.taken = false, .status = was_ahead.error()};
  if (*was_ahead) return {.taken = true, .status = OkStatus()};
  if (without_drafts_ > 0) {
    --without_drafts_;
    return DecodePlainly(token, logits);
  }
  const int limit = guess ? Limit(most_guesses) : 1;
  const int num_looked_up = NumLookedUp(limit);
  const int num_tokens = num_looked_up > 0 ? 1 + num_looked_up : length_.Begin(limit);
  if (num_tokens == 1) return DecodePlainly(token, logits);
  const Status status = Run(token, guess, num_tokens, num_looked_up, logits);
  if (!IsLimit(status.code())) return {.taken = status.ok(), .status = status};
  // The draft's caps may still have room for single tokens, but will not have room for a run soon.
  without_drafts_ = kMostDrafted;
  return DecodePlainly(token, logits);
}

StepOutcome Speculator::DecodePlainly(Token token, ShownLogits* logits) {
  const double begin = SecondsNow();
  const double waited = store_->cache().t1_reader().wait_seconds();
  if (Status refused = store_->MoveRefused(); !refused.ok()) {
    return {.taken = false, .status = std::move(refused)};
  }
  SequenceStep entry = FollowedEntry();
  entry.tokens = {&token, 1};
  const StepResult result = RunStep(&core(), {.entries = {&entry, 1}});
  if (!result.taken()) return result.outcome();
  logits->Show(result.logits(0));
  const double seconds = SecondsNow() - begin;
  looked_up_since_draft_ = 0;
  length_.PlainStep(seconds);
  CountVerifying(seconds, waited);
  return result.outcome();
}

Status Speculator::Run(Token token, const Guess& guess, int num_tokens, int num_looked_up,
                       ShownLogits* logits) {
  const Position begin = store_->next();
  const double waited = store_->cache().t1_reader().wait_seconds();
  const double begun = SecondsNow();
  double drafted_from = 0, verified_from = 0, verified = 0;
  Status status;
  try {
    run_.assign(1, token);
    is_looked_up_ = num_looked_up > 0;
    for (int i = 0; i < num_looked_up; ++i) run_.push_back(lookup_->Next(i));
    // Move whole pages of the previous run's rows, which are verified now, to T1 before the new run
    // adds rows. They are written while this run is drafted.
    status = store_->MakeRoom(StepKind::kDecode);
    drafted_from = SecondsNow();
    if (status.ok() && !is_looked_up_) status = Draft(guess, num_tokens);
    verified_from = SecondsNow();
    if (status.ok()) status = Verify(begin);
    verified = SecondsNow();
    if (status.ok()) status = ComputeLogits(0);
    if (status.ok()) status = CheckFinite(LogitsAfter(0), core().options.kv_type);
  } catch (const std::bad_alloc&) {
    EndRunAt(begin);
    return OutOfMemory(fmt::format("no memory for a run of {} tokens", num_tokens));
  } catch (...) {  // of a caller's guess, or of its use of signals
    EndRunAt(begin);
    throw;
  }
  if (!status.ok()) {
    EndRunAt(begin);
    return status;
  }
  const double end = SecondsNow();
  const auto run_tokens = static_cast<int>(run_.size());
  // Moving the store's rows counts as verifying.
  const double verify_seconds = drafted_from - begun + verified - verified_from;
  if (is_looked_up_) {
    length_.LookedUpStep(run_tokens, verify_seconds);
  } else {
    looked_up_since_draft_ = 0;
    length_.DraftedStep(run_tokens, verified_from - drafted_from, verify_seconds);
  }
  report_.draft_seconds += verified_from - drafted_from;
  report_.drafted += run_tokens - 1;
  report_.looked_up += num_looked_up;
  CountVerifying(verify_seconds, waited);
  CountLogits(end - verified);
  ahead_.assign(run_.begin() + 1, run_.end());
  next_ahead_ = 0;
  logits->Show(LogitsAfter(0));
  if (!is_looked_up_ && ahead_.empty()) length_.Compared(0, /*next_was_wrong=*/false);
  return OkStatus();
}

// Undoes a run that could not be drafted or verified.
void Speculator::EndRunAt(Position begin) {
  ahead_.clear();
  next_ahead_ = 0;
  if (draft_->next() > begin) draft_->TruncateTo(begin);
  if (store_->next() > begin) store_->TruncateTo(begin);
}

Status Speculator::Draft(const Guess& guess, int num_tokens) {
  for (;;) {
    const SequenceStep entry = {.sequence = draft_, .tokens = std::span(run_).last(1)};
    const StepResult result = RunStep(&core(), {.entries = {&entry, 1}});
    if (!result.status().ok()) {
      const bool only_logits_are_wrong =
          result.taken() && draft_->health().state() == SequenceHealth::State::kSound;
      if (!only_logits_are_wrong) return result.status();
    }
    report_.rows_read += RowsRead(*draft_);
    // No guess is drawn from logits that are not finite. Verifying computes its own.
    if (!result.status().ok()) return OkStatus();
    if (static_cast<int>(run_.size()) == num_tokens) return OkStatus();
    const std::optional<Guessed> next = guess(result.logits(0));
    if (!next.has_value() || !draft_->CheckTokens({&next->token, 1}).ok()) return OkStatus();
    if (!length_.Takes(next->margin)) return OkStatus();
    run_.push_back(next->token);
  }
}

Status Speculator::Verify(Position begin) {
  const bool one_token_at_a_time = options_.verify == LosslessOptions::Verify::kExact;
  EBB_RETURN_IF_ERROR(store_->MoveRefused());
  SequenceStep entry = FollowedEntry();
  if (IsOneSequence()) {
    if (draft_->next() > begin) draft_->TruncateTo(begin);
  } else if (!is_looked_up_) {
    entry.followers = {&draft_takes_rows_, 1};
    entry.signals = nullptr;
  }
  entry.tokens = run_;
  entry.logits = SequenceStep::Logits::kAll;
  ahead_.reserve(run_.size());
  const size_t vocab_size = core().model->shape().vocab_size;
  logits_.reserve(LogitsAtOnce(one_token_at_a_time) * vocab_size);
  logits_.clear();
  const StepResult result = RunStep(&core(), {.entries = {&entry, 1},
                                              .deferred_logits = true,
                                              .one_token_at_a_time = one_token_at_a_time});
  EBB_RETURN_IF_ERROR(result.status());
  const std::span<const float> outputs = core().runner->steps().outputs();
  outputs_.assign(outputs.begin(), outputs.end());
  return OkStatus();
}

Status Speculator::ComputeLogits(size_t i) {
  GraphRunner& runner = *core().runner;
  const bool one_token_at_a_time = options_.verify == LosslessOptions::Verify::kExact;
  const size_t count = std::min(run_.size() - i, LogitsAtOnce(one_token_at_a_time));
  const size_t floats = runner.steps().OutputFloats();
  EBB_RETURN_IF_ERROR(runner.ComputeLogits(std::span(outputs_).subspan(i * floats, count * floats),
                                           one_token_at_a_time));
  logits_.clear();
  for (size_t t = 0; t < count; ++t) {
    const std::span<const float> logits = runner.logits(t);
    logits_.insert(logits_.end(), logits.begin(), logits.end());
  }
  first_logits_ = i;
  return OkStatus();
}

bool Speculator::HasLogitsAfter(size_t i) const {
  return i >= first_logits_ &&
         (i - first_logits_) * core().model->shape().vocab_size < logits_.size();
}

std::span<const float> Speculator::LogitsAfter(size_t i) const {
  const size_t vocab_size = core().model->shape().vocab_size;
  return std::span(logits_).subspan((i - first_logits_) * vocab_size, vocab_size);
}

}  // namespace ebb
