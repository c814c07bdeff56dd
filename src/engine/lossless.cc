#include "src/engine/lossless.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <string>
#include <utility>

#include "src/engine/engine_impl.h"
#include "src/engine/store_placement.h"

namespace ebb {
namespace {

// After so many right guesses of the text's own one step is drafted, or plain, all the same: what
// such steps bring is then known still.
constexpr int kLookedUpBetweenDrafts = 512;

// An eviction of caps alone: the least share that is one.
constexpr double kOnlyWhatCapsLeaveOut = 1e-9;

// Several tokens take their logits with one pass over the weights, unless they go apart.
size_t LogitsAtOnce(bool tokens_apart) { return tokens_apart ? 1 : 4; }

SignalNeeds OnlyMass(const SignalNeeds& needs) {
  return {.mass = needs.mass, .mass_in_prefill = needs.mass_in_prefill};
}

// By the last step of `session`.
int64_t RowsRead(const Session::Impl& session) {
  int64_t rows = session.report.rows_evicted - session.report.rows_unread;
  for (const TierAccounting& tier : session.cache.accounting().tiers) rows += tier.rows;
  return rows;
}

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

}  // namespace

PolicySpec Lossless::DraftSpec(PolicySpec spec) {
  if (!spec.tiers.has_value()) return spec;
  TierSpec& tiers = *spec.tiers;
  const double in_t2 = (1 - tiers.evict_share) * tiers.t2_share;
  const double in_t0 = tiers.t0_cap_bytes > 0
                           ? (1 - tiers.evict_share) * (1 - tiers.t2_share)
                           : (1 - tiers.evict_share) * (1 - tiers.t2_share) * tiers.t0_share;
  tiers.evict_share = std::max(1 - in_t0 - in_t2, 0.0);
  // Of the rows alive, what lies in T1 would go anew at each interval.
  tiers.evict_of = EvictOf::kGenerated;
  tiers.t2_share = in_t0 + in_t2 > 0 ? in_t2 / (in_t0 + in_t2) : 0;
  if (tiers.t0_cap_bytes > 0) {
    tiers.evict_share = std::max(tiers.evict_share, kOnlyWhatCapsLeaveOut);
    tiers.protected_may_go = true;
  }
  tiers.t1 = T1Place::kNone;
  tiers.t1_cap_bytes = 0;
  return spec;
}

Status OfDraft(const Status& status) {
  return Status(status.code(),
                fmt::format("the draft, which has T0 and T2 alone: {}", status.message()));
}

Lossless::Lossless(const LosslessOptions& options, Session::Impl* draft,
                   std::unique_ptr<Session::Impl> store)
    : options_(options),
      draft_(draft),
      store_(std::move(store)),
      store_signals_(draft->engine->model->shape(), draft->policy.granularity,
                     OnlyMass(draft->signals.needs())),
      length_(options.draft_min, options.draft_max) {
  if (options.looks_up && options.draft_min < options.draft_max) lookup_.emplace();
}

Lossless::~Lossless() = default;

Result<std::unique_ptr<Lossless>> Lossless::Create(const LosslessOptions& options,
                                                   Session::Impl* draft) {
  EBB_RETURN_IF_ERROR(CheckOptions(options));
  if (draft->TurnsKeys()) {
    return InvalidArgument(
        fmt::format("{} rotates keys anew: a draft's keys stay where the full cache has them",
                    draft->options.past_context == PastContext::kReRotate
                        ? std::string("what goes on past the context")
                        : fmt::format("policy \"{}\"", draft->policy.name)));
  }
  Engine::Impl& engine = *draft->engine;
  const bool merges_t1 =
      !engine.stores.device()->one_memory() &&
      (engine.options.t1_mode == T1Mode::kCompute || engine.options.allow_inexact);
  if (options.verify == LosslessOptions::Verify::kExact && merges_t1) {
    return InvalidArgument(
        "attending to T1 where it lies is exact up to rounding only; verify fast, or stream T1");
  }
  const CacheStores stores = engine.stores.caches(CacheUse::kStore);
  const bool has_t1 = stores.t1 != nullptr || stores.t1_file != nullptr;
  const std::optional<TierSpec>& tiers = engine.options.tiers;
  if (!has_t1 && tiers.has_value() && tiers->t0_cap_bytes > 0) {
    return InvalidArgument(
        "a cap on T0 is the draft's, and without a T1 what verifies it lies in T0 too; give a T1");
  }
  EBB_ASSIGN_OR_RETURN(Policy policy,
                       MakePolicy({.name = "full"}, {.shape = engine.model->shape()}));
  if (has_t1) policy.placement = MakeStorePlacement();
  auto store = std::make_unique<Session::Impl>(&engine, SessionOptions(), std::move(policy),
                                               draft->context, stores);
  store->cache.BorrowFrom(draft->cache);
  return std::unique_ptr<Lossless>(new Lossless(options, draft, std::move(store)));
}

double Lossless::Now() const {
  const Device& device = *draft_->engine->stores.device();
  if (!device.one_memory()) return device.Seconds();
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int Lossless::Limit(int most_guesses) const {
  const int longest = 1 + std::clamp(most_guesses, 0, options_.draft_max - 1);
  int most = 1;
  while (most < longest && draft_->HasRoom(most + 1)) ++most;
  return most;
}

// What a prompt brought, or a file, comes first.
void Lossless::SeeText(Token token) try {
  if (!lookup_.has_value()) return;
  const auto known = std::span(draft_->tokens).first(draft_->num_asked_for());
  for (size_t i = lookup_->size(); i < known.size(); ++i) lookup_->Append(known[i]);
  lookup_->Append(token);
} catch (const std::bad_alloc&) {
  lookup_.reset();
}

void Lossless::ForgetText(Position end) try {
  if (lookup_.has_value()) lookup_->TruncateTo(end);
} catch (const std::bad_alloc&) {
  lookup_.reset();
}

int Lossless::NumLookedUp(int limit) const {
  if (!lookup_.has_value() || lookup_->match() == 0 || !length_.KnowsSteps()) return 0;
  if (looked_up_since_draft_ >= kLookedUpBetweenDrafts) return 0;
  size_t most = limit - 1;
  if (const Placement* placement = draft_->policy.placement.get(); placement != nullptr) {
    most = std::min<size_t>(most, placement->LongestStep() - 1);
  }
  if (draft_->driver.HasTiers()) {
    most = std::min(most, std::max<size_t>(draft_->cache.RoomForTokens(), 1) - 1);
  }
  const Model& model = *draft_->engine->model;
  for (size_t i = 0; i < most; ++i) {
    if (model.EndsGeneration(lookup_->Next(i))) most = i;
  }
  const size_t num_guesses =
      lookup_->NumWorthIt(most, length_.Rate(), [this](int num_tokens, double num_taken) {
        return length_.VerifySeconds(num_tokens, num_taken);
      });
  return 1 + static_cast<int>(num_guesses) < options_.draft_min ? 0 : static_cast<int>(num_guesses);
}

Status Lossless::Resume() {
  const auto positions = store_->cache.positions(0);
  for (size_t i = 0; i < std::max(positions.size(), draft_->tokens.size()); ++i) {
    if (i < positions.size() && positions[i] == static_cast<Position>(i)) continue;
    return Corrupt(fmt::format("the store lacks the row of token {}", i));
  }
  store_->tokens = draft_->tokens;
  store_->kinds = draft_->kinds;
  store_->first_generated = draft_->first_generated;
  store_->decode_steps = draft_->decode_steps;
  return OkStatus();
}

void Lossless::TruncateTo(Position end) {
  draft_->TruncateTo(end);
  store_->TruncateTo(end);
  ForgetText(end);
}

void Lossless::DropAhead() {
  const Position end = store_->next() - static_cast<Position>(num_ahead());
  if (num_ahead() > 0) {
    for (Session::Impl* const session : {draft_, store_.get()}) session->TruncateTo(end);
  }
  ahead_.clear();
  next_ahead_ = 0;
  ForgetText(end);  // what a step that failed was to add, too
}

void Lossless::CountComparison(bool right) {
  if (right) ++report_.accepted;
  if (is_looked_up_) {
    if (right) ++report_.accepted_looked_up, ++looked_up_since_draft_;
    return;
  }
  // The last of a run, or the one that ends it.
  if (!right || num_ahead() == 0) length_.Compared(static_cast<int>(next_ahead_), !right);
}

void Lossless::CountVerifying(double seconds, double waited_before) {
  ++report_.verify_steps;
  report_.verify_seconds += seconds;
  report_.wait_seconds += store_->cache.stage_wait_seconds() - waited_before;
  report_.bytes_read += store_->cache.t1_bytes_read();
  report_.rows_read += RowsRead(*store_);
}

void Lossless::CountLogits(double seconds) {
  const size_t vocab_size = draft_->engine->model->shape().vocab_size;
  length_.LogitsStep(static_cast<int>(logits_.size() / vocab_size), seconds);
  report_.verify_seconds += seconds;
}

Status Lossless::Decode(Token token, const Guess& guess, int most_guesses) {
  EBB_RETURN_IF_ERROR(draft_->CheckTokens({&token, 1}));
  if (num_ahead() > 0) {
    const bool right = ahead_[next_ahead_] == token;
    if (right) {
      if (!HasLogitsAfter(next_ahead_ + 1)) {
        const double begin = Now();
        EBB_RETURN_IF_ERROR(ComputeLogits(next_ahead_ + 1));
        CountLogits(Now() - begin);
      }
      SeeText(token);
      ++next_ahead_;
      draft_->ShowLogits(LogitsAfter(next_ahead_));
    }
    CountComparison(right);
    if (right) return OkStatus();
  }
  DropAhead();
  SeeText(token);
  if (without_drafts_ > 0) {
    --without_drafts_;
    return DecodePlainly(token);
  }
  const int limit = guess ? Limit(most_guesses) : 1;
  const int num_looked_up = NumLookedUp(limit);
  const int num_tokens = num_looked_up > 0 ? 1 + num_looked_up : length_.Begin(limit);
  if (num_tokens == 1) return DecodePlainly(token);
  const Status status = Run(token, guess, num_tokens, num_looked_up);
  if (status.code() != StatusCode::kResourceExhausted) return status;
  // In the draft's caps a single token may still have room, but not soon a run.
  without_drafts_ = kMostDrafted;
  return DecodePlainly(token);
}

Status Lossless::DecodePlainly(Token token) {
  const double begin = Now();
  const Position before = store_->next();
  const double waited = store_->cache.stage_wait_seconds();
  const Engine::Impl::Part part = {.session = store_.get(), .tokens = {&token, 1}, .draft = draft_};
  const Status status =
      draft_->engine->Step(StepKind::kDecode, {&part, 1}, Engine::Impl::Outputs::kLast);
  if (store_->next() == before) return status;
  draft_->ShowLogits(draft_->engine->runner->logits(0));
  const double seconds = Now() - begin;
  looked_up_since_draft_ = 0;
  length_.PlainStep(seconds);
  CountVerifying(seconds, waited);
  return status;
}

Status Lossless::Run(Token token, const Guess& guess, int num_tokens, int num_looked_up) {
  const Position begin = store_->next();
  const double waited = store_->cache.stage_wait_seconds();
  const double begun = Now();
  double drafted_from = 0, verified_from = 0, verified = 0;
  Status status;
  try {
    run_.assign(1, token);
    is_looked_up_ = num_looked_up > 0;
    for (int i = 0; i < num_looked_up; ++i) run_.push_back(lookup_->Next(i));
    // The rows of the run before this one are verified now: whole pages of them go to T1 before the
    // run's own come, and are written while it is drafted, if it is.
    status = Engine::Impl::MakeRoom(store_.get(), StepKind::kDecode);
    drafted_from = Now();
    if (status.ok() && !is_looked_up_) status = Draft(guess, num_tokens);
    verified_from = Now();
    if (status.ok()) status = Verify();
    verified = Now();
    if (status.ok()) status = ComputeLogits(0);
  } catch (const std::bad_alloc&) {
    EndRunAt(begin);
    return ResourceExhausted(fmt::format("no memory for a run of {} tokens", num_tokens));
  } catch (...) {  // of a caller's guess, or of what it does with signals
    EndRunAt(begin);
    throw;
  }
  if (!status.ok()) {
    EndRunAt(begin);
    return status;
  }
  const double end = Now();
  const auto run_tokens = static_cast<int>(run_.size());
  // The store's rows move for verifying.
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
  draft_->ShowLogits(LogitsAfter(0));
  if (!is_looked_up_ && ahead_.empty()) length_.Compared(0, /*next_was_wrong=*/false);
  return OkStatus();
}

// What could not be drafted or verified has not happened.
void Lossless::EndRunAt(Position begin) {
  ahead_.clear();
  next_ahead_ = 0;
  if (draft_->next() > begin) draft_->TruncateTo(begin);
  if (store_->next() > begin) store_->TruncateTo(begin);
}

Status Lossless::Draft(const Guess& guess, int num_tokens) {
  Engine::Impl& engine = *draft_->engine;
  for (;;) {
    const Engine::Impl::Part part = {.session = draft_, .tokens = std::span(run_).last(1)};
    EBB_RETURN_IF_ERROR(engine.Step(StepKind::kDecode, {&part, 1}, Engine::Impl::Outputs::kLast));
    report_.rows_read += RowsRead(*draft_);
    if (static_cast<int>(run_.size()) == num_tokens) return OkStatus();
    const std::optional<Guessed> next = guess(engine.runner->logits(0));
    if (!next.has_value() || !draft_->CheckTokens({&next->token, 1}).ok()) return OkStatus();
    if (!length_.Takes(next->margin)) return OkStatus();
    run_.push_back(next->token);
  }
}

Status Lossless::Verify() {
  Engine::Impl& engine = *draft_->engine;
  const Engine::Impl::Part part = {
      .session = store_.get(),
      .tokens = run_,
      .draft = is_looked_up_ ? draft_ : nullptr,
      .rewritten = is_looked_up_ ? nullptr : draft_,
      .tokens_apart = options_.verify == LosslessOptions::Verify::kExact};
  ahead_.reserve(run_.size());
  const size_t vocab_size = engine.model->shape().vocab_size;
  logits_.reserve(LogitsAtOnce(part.tokens_apart) * vocab_size);
  logits_.clear();
  EBB_RETURN_IF_ERROR(engine.Step(StepKind::kDecode, {&part, 1}, Engine::Impl::Outputs::kLater));
  const std::span<const float> outputs = engine.runner->outputs();
  outputs_.assign(outputs.begin(), outputs.end());
  return OkStatus();
}

Status Lossless::ComputeLogits(size_t i) {
  GraphRunner& runner = *draft_->engine->runner;
  const bool tokens_apart = options_.verify == LosslessOptions::Verify::kExact;
  const size_t count = std::min(run_.size() - i, LogitsAtOnce(tokens_apart));
  const size_t floats = runner.OutputFloats();
  EBB_RETURN_IF_ERROR(
      runner.ComputeLogits(std::span(outputs_).subspan(i * floats, count * floats), tokens_apart));
  logits_.clear();
  for (size_t t = 0; t < count; ++t) {
    const std::span<const float> logits = runner.logits(t);
    logits_.insert(logits_.end(), logits.begin(), logits.end());
  }
  first_logits_ = i;
  return OkStatus();
}

bool Lossless::HasLogitsAfter(size_t i) const {
  return i >= first_logits_ &&
         (i - first_logits_) * draft_->engine->model->shape().vocab_size < logits_.size();
}

std::span<const float> Lossless::LogitsAfter(size_t i) const {
  const size_t vocab_size = draft_->engine->model->shape().vocab_size;
  return std::span(logits_).subspan((i - first_logits_) * vocab_size, vocab_size);
}

}  // namespace ebb
