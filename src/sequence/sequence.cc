#include "src/sequence/sequence.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "src/base/checkpoints.h"
#include "src/base/clock.h"
#include "src/model/loaded/loaded_model.h"
#include "src/policy/pairs.h"
#include "src/policy/tier_plan.h"
#include "src/step/cpu/attention_nodes.h"

namespace ebb {
namespace {

MoveAccounting Since(const MoveAccounting& before, const MoveAccounting& now) {
  return {.rows_down = now.rows_down - before.rows_down,
          .rows_up = now.rows_up - before.rows_up,
          .bytes_down = now.bytes_down - before.bytes_down,
          .bytes_up = now.bytes_up - before.bytes_up,
          .rows_compressed = now.rows_compressed - before.rows_compressed,
          .seconds = now.seconds - before.seconds,
          .seconds_down = now.seconds_down - before.seconds_down,
          .seconds_up = now.seconds_up - before.seconds_up};
}

// Returns the number of (layer, kv head, token) triples in all tiers.
int64_t NumRows(const SequenceCache& cache) {
  size_t num_rows = 0;
  for (const auto& table : cache.tables().all()) {
    num_rows += table->rows.num_rows() * cache.layout().NumStreamsOf(table->groups);
  }
  return static_cast<int64_t>(num_rows);
}

size_t NumCheckpoints(const EngineCore& core) {
  return MostCheckpoints(core.model->shape(), core.model->loaded().hparams.state_bytes,
                         core.format.RowBytes());
}

std::unique_ptr<Ledger> MakeLedger(const SessionOptions& options, const SequenceCache& cache) {
  if (options.ledger == SessionOptions::Record::kNo) return nullptr;
  std::vector<int> rows_per_token;
  for (int group = 0; group < cache.layout().num_groups(); ++group) {
    rows_per_token.push_back(cache.layout().NumStreamsOf(group));
  }
  return std::make_unique<Ledger>(std::move(rows_per_token));
}

}  // namespace

bool RotatesKeys(PastContext past_context, const Policy& policy) {
  return past_context == PastContext::kReRotate || policy.key_turns == KeyTurns::kAfterEviction;
}

Status CheckBelowT0(PastContext past_context, const Policy& policy) {
  if (RotatesKeys(past_context, policy)) {
    return InvalidArgument(std::string(FindPair(Choice::kTurnedKeys, Choice::kT1)->why));
  }
  return OkStatus();
}

Sequence::Sequence(std::shared_ptr<EngineCore> core, SessionOptions options, Policy policy,
                   const CacheStores& stores)
    : core_(std::move(core)),
      options_(std::move(options)),
      policy_(std::move(policy)),
      cache_(core_->model->shape(), core_->format, policy_.granularity, stores),
      signals_(core_->model->shape(), policy_.granularity,
               Union(StepSettler::Needs(policy_), options_.extra_signals)),
      ledger_(MakeLedger(options_, cache_)),
      roll_back_(core_->model->shape(), core_->model->loaded().hparams.state_bytes,
                 NumCheckpoints(*core_)),
      settler_(&policy_, &cache_, &signals_, &core_->stores, &options_, ledger_.get(),
               core_->runner.get(), &roll_back_.windows()),
      prompt_(this),
      audit_(core_->model->shape()) {
  if (policy_.selector == nullptr || !options_.policy.tiers.has_value()) return;
  const TierSetting tiers = *TiersOf(core_->options, options_);
  cache_.SetCachedT1(
      {.share = tiers.shares.t0_share.value_or(1), .t0_cap_bytes = tiers.engine.t0_cap_bytes});
}

CacheAccounting Sequence::accounting() const {
  CacheAccounting sum = cache_.accounting();
  sum.table_bytes += unrotated_keys_.memory_bytes();
  if (ledger_ != nullptr) sum.ledger_bytes = ledger_->memory_bytes();
  sum.state_bytes = roll_back_.state().memory_bytes();
  if (policy_.selector != nullptr) {
    sum.selection.rows_read = all_rows_read_;
    sum.selection.rows_unread = all_rows_unread_;
    sum.selection.unread_mass = policy_.selector->EstimatedUnreadMass();
    sum.selection.sampled_unread_mass = audit_.UnreadMass();
    sum.selection.num_samples = audit_.num_samples();
  }
  return sum;
}

bool Sequence::HasRoom(size_t num_tokens) const {
  return rope_.Next(next()) + num_tokens <= static_cast<size_t>(options_.context);
}

Status Sequence::CheckRoom(size_t num_tokens) const {
  if (HasRoom(num_tokens)) return OkStatus();
  return ContextFull("the context of " + std::to_string(options_.context) +
                     " tokens is full: it has " + std::to_string(rope_.Next(next())) + ", and " +
                     std::to_string(num_tokens) + " more do not fit");
}

Status Sequence::CheckRoomAfterRotation(size_t num_tokens) const {
  if (!RotatesKeys()) return CheckRoom(num_tokens);
  if (cache_.tables().max_rows() + num_tokens <= static_cast<size_t>(options_.context))
    return OkStatus();
  return ContextFull("the context of " + std::to_string(options_.context) +
                     " tokens is full: " + std::to_string(cache_.tables().max_rows()) +
                     " survive, and " + std::to_string(num_tokens) + " more do not fit");
}

int Sequence::LongestStep() const {
  const Placement* const placement = policy_.placement.get();
  if (placement == nullptr || placement->LongestStep() == kAnyStep) return kAnyStep;
  // After a roll-back T2 may hold rows that a step of several tokens would have to hide.
  const Position decided = next() - placement->DecidedAfter();
  for (const auto& table : cache_.tables().all()) {
    const std::span<const uint32_t> in_t2 = table->CompressedIndices();
    if (!in_t2.empty() && table->rows.positions()[in_t2.back()] >= decided) return 1;
  }
  return placement->LongestStep();
}

bool Sequence::RotatesKeys() const { return ebb::RotatesKeys(options_.past_context, policy_); }

Status Sequence::CheckBelowT0() const { return ebb::CheckBelowT0(options_.past_context, policy_); }

// Re-rotates keys if the context has no free positions left. This includes the new rows, which are
// not written yet: rotating them does no harm and keeps the order of calls simple.
Status Sequence::MakePlaces(size_t num_tokens) {
  if (HasRoom(num_tokens)) return OkStatus();
  return RotateKeys(static_cast<Position>(cache_.tables().max_rows()), num_tokens);
}

Status Sequence::ClosePositionGaps() { return RotateKeys(rope_.Next(next()), 0); }

// Re-rotates group by group. A failure half-way leaves the RoPE positions of keys unknown, so it
// breaks the sequence.
Status Sequence::RotateKeys(Position end, size_t num_tokens) {
  // Other sequences read the keys of shared pages as they are, so this sequence copies such pages
  // first.
  EBB_RETURN_IF_ERROR(cache_.OwnPages());
  try {
    Status status;
    for (int group = 0; group < cache_.layout().num_groups() && status.ok(); ++group) {
      status = core_->runner->RotateKeys(&cache_, group, rope_, end, next(), &unrotated_keys_);
      if (status.ok()) rope_.MarkRotated(cache_, group, end);
    }
    if (!status.ok()) {
      health_.Break(Status(status.code(), status.message() + "; this sequence cannot go on"));
    }
  } catch (const std::bad_alloc&) {
    BreakWithoutMemory("to re-rotate keys");
  }
  EBB_RETURN_IF_ERROR(health_.CheckUnbroken());
  rope_.Continue(end, next() + static_cast<Position>(num_tokens));
  // Stored queries of earlier steps refer to the keys' old RoPE positions, so they are useless now.
  signals_.Forget();
  return OkStatus();
}

Status Sequence::CheckTokens(std::span<const Token> tokens) const {
  const int vocab_size = core_->model->shape().vocab_size;
  for (const Token token : tokens) {
    if (token < 0 || token >= vocab_size) {
      return InvalidArgument("token " + std::to_string(token) + " is not in the vocabulary of " +
                             std::to_string(vocab_size));
    }
  }
  return OkStatus();
}

Status Sequence::CheckPrompt(size_t num_tokens) const try {
  if (policy_.placement == nullptr) return OkStatus();
  std::vector<TokenKind> all(tokens_.kinds().begin(), tokens_.kinds().end());
  all.resize(all.size() + num_tokens, TokenKind::kGiven);
  PlacementInput facts = MakePlacementInput(StepKind::kPrefill);
  facts.kinds = all;
  facts.next_position += static_cast<Position>(num_tokens);
  if (tokens_.num_generated() == 0) facts.first_generated = facts.next_position;
  facts.tokens_to_come = 0;
  const bool needs_room = settler_.CapsMayBind() && cache_.RoomForTokens() < num_tokens;
  return needs_room ? settler_.Check(facts, num_tokens) : policy_.placement->Check(facts);
} catch (const std::bad_alloc&) {
  return OutOfMemory("no memory for a prompt of " + std::to_string(num_tokens) + " tokens");
}

Status Sequence::MakeRoom(StepKind next) {
  return MoveRows([&] { return settler_.MakeRoom(MakePlacementInput(next, /*new_tokens=*/0)); });
}

Status Sequence::SetT0Share(double share) {
  EBB_RETURN_IF_ERROR(health_.CheckUnbroken());
  if (policy_.placement == nullptr || !policy_.placement->SetT0Share(share)) {
    return InvalidArgument("policy \"" + policy_.name +
                           "\" has no share of rows in T0 that could change: it needs tiers with a "
                           "T1 and without a cap on T0");
  }
  t0_share_ = share;
  cache_.SetCachedT1({.share = share});
  return MoveRows(
      [&] { return settler_.DivideAnew(MakePlacementInput(StepKind::kDecode, /*new_tokens=*/0)); });
}

std::vector<Explanation> Sequence::Explain(Position position) const {
  const bool is_there = position >= 0 && position < next();
  if (!is_there || !health_.CheckUnbroken().ok()) return {};
  return settler_.ExplainNow(MakePlacementInput(StepKind::kDecode, /*new_tokens=*/0), position);
}

Status Sequence::SetT0Floor(uint64_t num_bytes) {
  EBB_RETURN_IF_ERROR(cache_.SetT0Floor(num_bytes));
  options_.t0_floor_bytes = num_bytes;
  return OkStatus();
}

Status Sequence::Park() {
  if (!cache_.HasTier(Tier::kT1)) {
    return InvalidArgument("a session without T1 has no place to park its rows in");
  }
  EBB_RETURN_IF_ERROR(CheckBelowT0());
  cache_.ReleaseCachedT1();
  return MoveRows([&] { return settler_.Park(); });
}

Status Sequence::MoveRows(const std::function<Status()>& move) {
  EBB_RETURN_IF_ERROR(health_.CheckUnbroken());
  try {
    Status status = move();
    health_.Break(cache_.CheckWhole());
    return status.ok() ? health_.CheckUnbroken() : status;
  } catch (const std::bad_alloc&) {
    BreakWithoutMemory("for moving rows out of T0");
    return health_.CheckUnbroken();
  }
}

Status Sequence::EndRefusalIfCapsHold() {
  if (!health_.refused().has_value()) return OkStatus();
  EBB_RETURN_IF_ERROR(settler_.Check(MakePlacementInput(*health_.refused())));
  health_.EndRefusal();
  return OkStatus();
}

Status Sequence::MoveRefused() {
  if (!health_.refused().has_value()) return OkStatus();
  EBB_RETURN_IF_ERROR(MakeRoom(*health_.refused()));
  health_.EndRefusal();
  return OkStatus();
}

void Sequence::TruncateTo(Position end) {
  prompt_.TruncateTo(end);
  roll_back_.KeepNewest();
  if (end < next()) health_.EndRefusal();
  signals_.Forget();
  DropRows(end);
  tokens_.TruncateTo(end);
}

void Sequence::DropRows(Position end) try {
  if (!health_.CheckUnbroken().ok()) return;
  settler_.TruncateTo(end);
  cache_.TruncateTo(end);
  roll_back_.GoBackTo(end);
  if (end < next()) rope_.TruncateTo(cache_, end);
  unrotated_keys_.TruncateTo(end);
} catch (const std::bad_alloc&) {
  BreakWithoutMemory("to roll back");
}

void Sequence::TakeTokensOf(const Sequence& other, Position end) {
  tokens_ = other.tokens_;
  tokens_.TruncateTo(end);
}

void Sequence::BreakWithoutMemory(const char* purpose) {
  // The short error is set first, in case formatting the longer message also runs out of memory.
  health_.Break(Status(StatusCode::kOutOfMemory, "no memory"));
  health_.Break(OutOfMemory(std::string("no memory ") + purpose + "; this sequence cannot go on"));
}

PlacementInput Sequence::MakePlacementInput(StepKind kind, int new_tokens) const {
  return {.kinds = tokens_.kinds(),
          .first_generated = tokens_.first_generated(),
          .next_position = next(),
          .generated_tokens = tokens_.num_generated(),
          .new_tokens = new_tokens,
          .step_kind = kind,
          .tokens_to_come = kind == StepKind::kPrefill ? prompt_.tokens_to_come() : 0};
}

Status Sequence::CheckStep(std::span<const Token> tokens) const {
  if (!core_->model->loaded().has_weights) {
    return InvalidArgument("the model was loaded without its weights (WeightMode::kUnread)");
  }
  EBB_RETURN_IF_ERROR(health_.CheckUnbroken());
  EBB_RETURN_IF_ERROR(CheckTokens(tokens));
  return CheckRoomAfterRotation(tokens.size());
}

Status Sequence::AppendRows(size_t num_tokens, bool frees_windows) {
  tokens_.Reserve(num_tokens);
  Status status = cache_.Append(next(), static_cast<int>(num_tokens));
  if (!IsLimit(status.code()) || !frees_windows || roll_back_.windows().empty()) {
    return status;
  }
  // Evicts the rows that are kept only for a roll-back, and tries again.
  roll_back_.windows().Clear();
  settler_.ExpireAll(next());
  return cache_.Append(next(), static_cast<int>(num_tokens));
}

void Sequence::BeginStep(StepKind kind, int num_tokens, int num_taken, SignalBuffers* signals) {
  rows_unread_ = 0;
  moves_before_ = cache_.moves();
  const auto division =
      num_taken < num_tokens ? SignalBuffers::Division::kByToken : SignalBuffers::Division::kWhole;
  signals->Begin(cache_, kind, next(), num_tokens, division);
  settler_.BeginStep(next(), num_taken);
}

void Sequence::Describe(SequenceStep* step) {
  step->cache = &cache_;
  const bool may_select = policy_.selector != nullptr && step->kind == StepKind::kDecode;
  step->selector = may_select && !step->reads_all_rows ? policy_.selector.get() : nullptr;
  step->keeps_cached_t1 = may_select && step->reads_all_rows;
  selects_ = step->selector != nullptr;
  step->state = roll_back_.state().exists() ? &roll_back_.state() : nullptr;
  step->rows_unread = &rows_unread_;
  step->audit = &audit_;
  step->has_expiring_rows = settler_.HasExpiringRows();
}

// Lets the policy decide after a step, and returns the number of evicted rows. Running out of
// memory breaks the sequence, because a policy that stopped half-way may know other rows than the
// cache has.
Result<int64_t> Sequence::Decide(StepKind kind, int new_tokens, Decides decides) {
  try {
    Result<int64_t> evicted = settler_.EndStep(MakePlacementInput(kind, new_tokens), decides);
    health_.Break(cache_.CheckWhole());
    EBB_RETURN_IF_ERROR(evicted.status());
    EBB_RETURN_IF_ERROR(health_.CheckUnbroken());
    if (*evicted > 0 && policy_.key_turns == KeyTurns::kAfterEviction) {
      EBB_RETURN_IF_ERROR(ClosePositionGaps());
    }
    return evicted;
  } catch (const std::bad_alloc&) {
    BreakWithoutMemory("for what the policy decided");
    return health_.CheckUnbroken();
  }
}

Status Sequence::EndStep(StepKind kind, std::span<const Token> tokens, StepReport report,
                         Decides decides) try {
  const double start = SecondsNow();
  const auto num_tokens = static_cast<int>(tokens.size());
  tokens_.Append(tokens, kind == StepKind::kDecode ? TokenKind::kGenerated : TokenKind::kGiven);
  if (kind == StepKind::kPrefill) {
    prompt_.EndStep(tokens.size(), decides == Decides::kYes);
  } else {
    // A decode step ends the current prompt, even one that was not read to its end. If the sequence
    // began by decoding, this also ends its first prefill, so that no later prompt resets the
    // scorer's sums.
    prompt_.End();
  }
  Result<int64_t> evicted = Decide(kind, num_tokens, decides);
  if (!evicted.ok()) health_.Refuse(kind);
  report.kind = kind;
  report.num_tokens = num_tokens;
  report.rows_evicted = evicted.ok() ? *evicted : 0;
  report.rows_unread = rows_unread_;
  if (selects_) {
    all_rows_unread_ += rows_unread_;
    all_rows_read_ += NumRows(cache_) - rows_unread_;
  }
  report.policy_seconds = SecondsNow() - start;
  report.moves = Since(moves_before_, cache_.moves());
  report.mass_computed = signals_.wants_mass();
  report_ = report;
  return evicted.ok() ? OkStatus() : std::move(evicted).status();
} catch (const std::bad_alloc&) {
  // The message is short enough to need no allocation, which could fail again.
  health_.Break(OutOfMemory("no memory"));
  return health_.CheckUnbroken();
}

void Sequence::KeepFirst(SignalBuffers* signals) try {
  cache_.TruncateTo(next() + 1);
  signals->KeepFirst();
} catch (const std::bad_alloc&) {
  BreakWithoutMemory("to drop guesses");
}

int Sequence::TokensToDecision(int most) const {
  if (policy_.placement == nullptr) return most;
  PlacementInput facts = MakePlacementInput(StepKind::kDecode);
  for (int count = 1; count < most; ++count) {
    ++facts.next_position;
    ++facts.generated_tokens;
    if (settler_.IsDue(facts, static_cast<size_t>(count))) return count;
  }
  return most;
}

void Sequence::UndoStep(bool has_begun) {
  // The step's beginning has already moved the history of queries on, so the history is dropped.
  if (has_begun) signals_.Forget();
  if (const RecurrentState& state = roll_back_.state();
      state.exists() && state.position() != next()) {
    health_.Break(
        Internal("a step failed while it wrote the recurrent state of the model; this "
                 "sequence cannot go on"));
  }
  DropRows(next());
}

}  // namespace ebb
