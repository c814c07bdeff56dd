#include "src/sequence/step_settler.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <limits>
#include <new>
#include <numeric>
#include <utility>

#include "src/base/fetch_ahead.h"

namespace ebb {
namespace {

// kCompactBytesPerStep limits the bytes that compaction copies per decode step: 8 MiB take about
// 0.4 ms at 20 GB/s, a few percent of one step in 64.
constexpr size_t kCompactBytesPerStep = size_t{8} << 20;
// kSortBytesPerStep limits sorting per step: after this many bytes no further table is sorted. 90
// tables of 1,024 rows then take a dozen steps, and are out of order again after 64.
constexpr size_t kSortBytesPerStep = size_t{2} << 20;

// kGroupsWorthThreads is the number of groups from which on threads decide; for fewer, waking the
// threads takes longer than the work.
constexpr int kGroupsWorthThreads = 4;

// kExchangedRows is the number of rows that two full tiers exchange at a time: half a page, for
// which a placement always keeps room.
constexpr size_t kExchangedRows = kRowsPerPage / 2;

bool HasWindows(const SequenceCache& cache) {
  for (int group = 0; group < cache.layout().num_groups(); ++group) {
    if (cache.layout().WindowOf(group) > 0) return true;
  }
  return false;
}

}  // namespace

StepSettler::StepSettler(Policy* policy, SequenceCache* cache, SignalBuffers* signals,
                         TierStores* stores, const SessionOptions* options, Ledger* ledger,
                         GraphRunner* runner, const WindowCheckpoints* checkpoints)
    : policy_(policy),
      cache_(cache),
      signals_(signals),
      stores_(stores),
      options_(options),
      ledger_(ledger),
      scores_used_(UsesScores(*policy)),
      delays_(scores_used_ && policy_->placement->LongestStep() < kAnyStep),
      runner_(runner),
      checkpoints_(checkpoints),
      decides_in_parallel_(scores_used_ && policy->scorer->GroupsAreIndependent() &&
                           policy->placement->GroupsAreIndependent() &&
                           policy->selector == nullptr && ledger == nullptr &&
                           !options->on_signals && !options->explained && !CapsMayBind() &&
                           cache->layout().num_groups() >= kGroupsWorthThreads &&
                           runner->threads() > 1 && !HasWindows(*cache)),
      scratch_(decides_in_parallel_ ? runner->threads() : 1),
      gone_(decides_in_parallel_ ? cache->layout().num_groups() : 0) {
  if (scores_used_ && !decides_in_parallel_ && policy->scorer->Total() != MassTotal::kNone) {
    totals_.emplace(signals->layout());
  }
}

bool StepSettler::CapsMayBind() const {
  return cache_->HasTier(Tier::kT1) || cache_->HasTier(Tier::kT2) ||
         options_->policy.tiers.has_value();
}

bool StepSettler::MayKeepRowsBehindWindows() const {
  return policy_->placement == nullptr && policy_->selector == nullptr && !CapsMayBind() &&
         !stores_->device()->IsClosed();
}

void StepSettler::ExpireAll(Position next) {
  for (int group = 0; group < cache_->layout().num_groups(); ++group) Expire(next, group);
  CompactAll();
}

bool StepSettler::UsesScores(const Policy& policy) {
  return policy.placement != nullptr && policy.placement->NeedsScores();
}

// Returns the signals that the scorer, if a placement reads its scores, and the selector need.
SignalNeeds StepSettler::Needs(const Policy& policy) {
  SignalNeeds needs;
  if (UsesScores(policy)) needs = policy.scorer->Needs();
  if (policy.selector != nullptr) needs = Union(needs, policy.selector->Needs());
  return needs;
}

bool StepSettler::ComparesKeys(const Policy& policy) {
  if (policy.selector != nullptr && policy.selector->ComparesKeys()) return true;
  return UsesScores(policy) && policy.scorer->ComparesKeys();
}

void StepSettler::BeginStep(Position first, int num_tokens) {
  if (ledger_ != nullptr) ledger_->ReserveTokens(num_tokens);
  if (!scores_used_ && policy_->selector == nullptr) return;
  positions_.resize(num_tokens);
  std::iota(positions_.begin(), positions_.end(), first);
  for (int group = 0; group < cache_->layout().num_groups(); ++group) {
    if (scores_used_) policy_->scorer->Append(group, positions_);
    if (totals_) totals_->Append(group, positions_.size());
    if (policy_->selector != nullptr) policy_->selector->Append(group, positions_);
  }
  if (num_tokens > 1 && delays_) HideRows(first, num_tokens);
}

void StepSettler::HideRows(Position first, int num_tokens) {
  hiding_.reserve(cache_->layout().num_groups());
  for (int group = 0; group < cache_->layout().num_groups(); ++group) {
    expiring_.clear();
    policy_->placement->FindExpiring({.group = group,
                                      .num_groups = cache_->layout().num_groups(),
                                      .positions = cache_->positions(group),
                                      .scores = ScoresOf(group),
                                      .next_position = first + num_tokens,
                                      .step_kind = StepKind::kPrefill},
                                     &expiring_);
    for (const Expiry& row : expiring_) cache_->SetLastVisible(group, row.row, row.last_visible);
    if (!expiring_.empty()) hiding_.push_back(group);
  }
}

// Makes all rows of the groups visible again; the hidden rows have been evicted by now.
void StepSettler::ShowRows() {
  for (const int group : hiding_) {
    const std::span<const Tier> tiers = cache_->tiers(group);
    for (uint32_t row = 0; row < tiers.size(); ++row) {
      if (tiers[row] == Tier::kT2) continue;  // never hidden
      cache_->SetLastVisible(group, row, kVisibleForEver);
    }
  }
  hiding_.clear();
}

Result<int64_t> StepSettler::EndStep(const PlacementInput& facts, Decides decides) {
  if (ledger_ != nullptr) ledger_->Append(facts.next_position - ledger_->next_position());
  decided_.clear();
  num_evicted_ = 0;
  num_expired_ = 0;
  most_gone_ = 0;
  Status status;
  if (decides_in_parallel_) {
    DecideOnThreads(facts, decides);
  } else {
    status = DecideInTurn(facts, decides);
  }
  ShowRows();
  has_placed_rows_ = num_evicted_ > num_expired_ ||
                     std::ranges::any_of(decided_, [](const GroupDecision& decision) {
                       return !decision.moves.empty();
                     });
  // Moves rows even if a group failed: the groups before it have already removed their evicted
  // rows, and their other moves must follow.
  const Status moved = MoveDecided();
  EBB_RETURN_IF_ERROR(status);
  EBB_RETURN_IF_ERROR(moved);
  Compact(facts.step_kind, most_gone_);
  cache_->Sort(kSortBytesPerStep);
  return num_evicted_;
}

void StepSettler::TurnTo(int group, PlacementInput* facts) const {
  facts->group = group;
  facts->num_groups = cache_->layout().num_groups();
  facts->positions = cache_->positions(group);
}

Status StepSettler::Check(PlacementInput facts, size_t num_to_come) const {
  if (policy_->placement == nullptr || !CapsMayBind()) return OkStatus();
  const Position first = facts.next_position - static_cast<Position>(num_to_come);
  std::vector<Position> positions;
  std::vector<Tier> tiers;
  for (int group = 0; group < cache_->layout().num_groups(); ++group) {
    const auto now = cache_->positions(group);
    positions.assign(now.begin(), now.end());
    positions.resize(now.size() + num_to_come);
    std::iota(positions.end() - num_to_come, positions.end(), first);
    const auto tiers_now = cache_->tiers(group);
    tiers.assign(tiers_now.begin(), tiers_now.end());
    tiers.resize(positions.size(), Tier::kT0);
    TurnTo(group, &facts);
    facts.positions = positions;
    facts.tiers = tiers;
    EBB_RETURN_IF_ERROR(policy_->placement->Check(facts));
  }
  return OkStatus();
}

Status StepSettler::MakeRoom(const PlacementInput& facts) {
  if (policy_->placement == nullptr) return OkStatus();
  decided_.clear();
  most_gone_ = 0;
  Status status;
  for (int group = 0; group < cache_->layout().num_groups() && status.ok(); ++group) {
    status = Place(facts, group);
  }
  const Status moved = MoveDecided();
  Compact(facts.step_kind, most_gone_);
  return status.ok() ? moved : status;
}

Status StepSettler::DivideAnew(PlacementInput facts) {
  facts.step_kind = StepKind::kPrefill;
  decided_.clear();
  num_evicted_ = 0;
  most_gone_ = 0;
  Status status;
  for (int group = 0; group < cache_->layout().num_groups() && status.ok(); ++group) {
    status = PlaceNow(facts, group);
  }
  const Status moved = MoveDecided();
  CompactAll();
  return status.ok() ? moved : status;
}

Status StepSettler::Park() {
  decided_.clear();
  for (int group = 0; group < cache_->layout().num_groups(); ++group) {
    GroupDecision decision = {.group = group};
    const std::span<const Tier> tiers = cache_->tiers(group);
    for (uint32_t row = 0; row < tiers.size(); ++row) {
      if (tiers[row] != Tier::kT0) continue;
      decision.moves.push_back({row, Tier::kT1});
      if (ledger_ == nullptr) continue;
      decision.changes.push_back({cache_->positions(group)[row], Tier::kT1});
    }
    decided_.push_back(std::move(decision));
  }
  const Status moved = MoveDecided();
  CompactAll();
  return moved;
}

Status StepSettler::DecideInTurn(const PlacementInput& facts, Decides decides) {
  ObserveInTurn();
  const int num_groups = cache_->layout().num_groups();
  Status status;
  for (int group = 0; group < num_groups; ++group) {
    if (group + 1 < num_groups) PrefetchGroup(facts, group + 1);
    Expire(facts.next_position, group);
    // After the first error no group is placed any more, but every scorer must see its step.
    if (policy_->placement == nullptr || decides == Decides::kNo || !status.ok()) continue;
    status = Place(facts, group);
  }
  return status;
}

void StepSettler::ObserveInTurn() {
  const bool scorer_watches = scores_used_ && !totals_ && !policy_->scorer->Needs().Empty();
  const bool selector_watches = policy_->selector != nullptr && !policy_->selector->Needs().Empty();
  if (!scorer_watches && !selector_watches && !totals_ && !options_->on_signals) return;
  const int num_groups = cache_->layout().num_groups();
  groups_.clear();
  for (int group = 0; group < num_groups; ++group) groups_.push_back(signals_->Group(group));
  for (int group = 0; group < num_groups; ++group) {
    if (totals_ && group + 1 < num_groups) {
      FetchAhead(groups_[group + 1].mass);
      totals_->Prefetch(group + 1);
    }
    if (totals_) totals_->Add(group, groups_[group], signals_->step());
    if (options_->on_signals) {
      options_->on_signals(group, cache_->positions(group), groups_[group], signals_->step());
    }
  }
  if (scorer_watches) policy_->scorer->Observe(groups_, signals_->step());
  if (selector_watches) policy_->selector->Observe(groups_, signals_->step());
}

std::span<const float> StepSettler::ScoresOf(int group) const {
  if (totals_) policy_->scorer->TakeTotal(group, (*totals_)[group]);
  return policy_->scorer->Scores(group);
}

// Removes rows that left a sliding window before the placement decides, so that the placement sees
// the same rows as the next query.
void StepSettler::Expire(Position next, int group) {
  const int window = cache_->layout().WindowOf(group);
  if (window == 0) return;
  const std::span<const Position> positions = cache_->positions(group);
  checkpoints_->FindGone(positions, window, next, &removed_);
  const size_t num_gone = removed_.size();
  if (num_gone == 0) return;
  if (options_->explained.has_value()) ExplainExpired(group, next);
  if (ledger_ != nullptr) {
    std::vector<Ledger::Change> changes;
    for (const uint32_t row : removed_) changes.push_back({positions[row], Tier::kT3});
    ledger_->Move(group, changes);
  }
  const auto num_rows = static_cast<int64_t>(num_gone) * cache_->layout().NumStreamsOf(group);
  num_evicted_ += num_rows;
  num_expired_ += num_rows;
  most_gone_ = std::max(most_gone_, num_gone);
  RemoveRows(group);
}

// Lets threads decide about groups. They only remove rows from the tables; this thread then frees
// pages, which all groups share, and splits tables that several groups share.
void StepSettler::DecideOnThreads(const PlacementInput& facts, Decides decides) {
  std::atomic<bool> out_of_memory = false;
  for (Scratch& scratch : scratch_) {
    scratch.most_gone = 0;
    scratch.removal.emplace(cache_, &scratch.removal_lists);
  }
  runner_->RunOnThreads([&](int part, int num_parts) {
    try {
      const int num_groups = cache_->layout().num_groups();
      const int end = num_groups * (part + 1) / num_parts;
      for (int group = num_groups * part / num_parts; group < end; ++group) {
        if (group + 1 < end) PrefetchGroup(facts, group + 1);
        DecideApart(facts, group, decides, &scratch_[part]);
      }
    } catch (const std::bad_alloc&) {
      out_of_memory = true;
    }
  });
  for (Scratch& scratch : scratch_) {
    num_evicted_ += static_cast<int64_t>(scratch.removal->num_rows());
    scratch.removal.reset();
    most_gone_ = std::max(most_gone_, scratch.most_gone);
  }
  if (out_of_memory) throw std::bad_alloc();
  for (int group = 0; group < cache_->layout().num_groups(); ++group) {
    const std::vector<uint32_t>& gone = gone_[group];
    num_evicted_ += static_cast<int64_t>(gone.size()) * cache_->layout().NumStreamsOf(group);
    cache_->Remove(group, gone);
  }
}

void StepSettler::DecideApart(PlacementInput facts, int group, Decides decides, Scratch* scratch) {
  const GroupSignals signals = signals_->Group(group);
  std::vector<uint32_t>& gone = gone_[group];
  gone.clear();
  if (!policy_->scorer->Needs().Empty()) {
    policy_->scorer->ObserveGroup(group, signals, signals_->step());
  }
  TurnTo(group, &facts);
  if (decides == Decides::kNo) return;
  if (!policy_->placement->Due(facts, facts.positions.size())) return;
  facts.scores = policy_->scorer->Scores(group);
  scratch->moves.clear();
  policy_->placement->Place(facts, &scratch->moves);
  // decides_in_parallel_ requires a policy without tiers, so every move is an eviction.
  for (const Move& move : scratch->moves) gone.push_back(move.row);
  if (gone.empty()) return;
  KeepAllBut(gone, facts.positions.size(), scratch);
  policy_->scorer->Retain(group, scratch->kept);
  scratch->most_gone = std::max(scratch->most_gone, gone.size());
  if (scratch->removal->Remove(group, gone)) gone.clear();
}

// Prefetches a group's data: a step reads hundreds of megabytes, so the processor's cache holds
// nothing of a group any more.
void StepSettler::PrefetchGroup(const PlacementInput& facts, int group) const {
  if (!scores_used_) return;
  const bool due = policy_->placement->Due(facts, cache_->positions(group).size());
  if (decides_in_parallel_) FetchAhead(signals_->Group(group).mass);
  if (decides_in_parallel_ || due) policy_->scorer->Prefetch(group);
  if (due) cache_->tables().FetchForRemoval(group);
}

bool StepSettler::IsDue(PlacementInput facts, size_t num_more) const {
  for (int group = 0; group < cache_->layout().num_groups(); ++group) {
    TurnTo(group, &facts);
    if (policy_->placement->Due(facts, facts.positions.size() + num_more)) return true;
  }
  return false;
}

Status StepSettler::Place(PlacementInput facts, int group) {
  TurnTo(group, &facts);
  return policy_->placement->Due(facts, facts.positions.size()) ? PlaceNow(facts, group)
                                                                : OkStatus();
}

Status StepSettler::PlaceNow(PlacementInput facts, int group) {
  TurnTo(group, &facts);
  if (scores_used_) facts.scores = ScoresOf(group);
  if (CapsMayBind()) {
    facts.tiers = cache_->tiers(group);
    EBB_RETURN_IF_ERROR(policy_->placement->Check(facts));
  }
  std::vector<Move>& moves = scratch_.front().moves;
  moves.clear();
  policy_->placement->Place(facts, &moves);
  if (options_->explained.has_value()) Explain(facts, moves);
  GroupDecision decision = {.group = group};
  removed_.clear();
  for (const Move& move : moves) {
    // The ledger needs positions, which the cache may no longer know after rows are removed.
    if (ledger_ != nullptr) decision.changes.push_back({facts.positions[move.row], move.to});
    if (move.to == Tier::kT3) {
      removed_.push_back(move.row);
    } else {
      // The index counts the rows that remain once the evicted rows before this one are removed.
      decision.moves.push_back({move.row - static_cast<uint32_t>(removed_.size()), move.to});
    }
  }
  num_evicted_ += static_cast<int64_t>(removed_.size()) * cache_->layout().NumStreamsOf(group);
  most_gone_ = std::max(most_gone_, removed_.size() + decision.moves.size());
  if (!removed_.empty()) RemoveRows(group);
  // Without tiers every decision of a policy is empty here, for every group at every step: its
  // evictions were carried out above. Such a decision is stored for the ledger alone.
  if (!decision.moves.empty() || ledger_ != nullptr) decided_.push_back(std::move(decision));
  return OkStatus();
}

Status StepSettler::MoveDecided() {
  if (decided_.empty()) return OkStatus();
  const Status status = MoveAllOrInTurns();
  if (ledger_ == nullptr) return status;
  for (const GroupDecision& decision : decided_) {
    const int group = decision.group;
    if (status.ok()) {
      ledger_->Move(group, decision.changes);
    } else {
      ledger_->Reconcile(group, cache_->positions(group), cache_->tiers(group));
    }
  }
  return status;
}

// Moves the rows of all groups at once, so that T1's file can read and write all its pages
// together; if there is no room for that, group after group.
Status StepSettler::MoveAllOrInTurns() {
  std::vector<GroupMoves> all;
  for (const GroupDecision& decision : decided_) all.push_back({decision.group, decision.moves});
  const Status at_once = cache_->Move(all);
  if (!IsLimit(at_once.code())) return at_once;
  for (const GroupDecision& decision : decided_) EBB_RETURN_IF_ERROR(MoveInTurns(decision));
  return OkStatus();
}

// Moves a group's rows in small portions if they do not fit at once: when two full tiers exchange
// rows, neither has room for all of them.
Status StepSettler::MoveInTurns(const GroupDecision& decision) {
  const int group = decision.group;
  const Status at_once = cache_->Move(group, decision.moves);
  if (!IsLimit(at_once.code())) return at_once;
  std::array<std::vector<RowMove>, 3> by_tier;
  for (const RowMove& move : decision.moves) by_tier[static_cast<size_t>(move.to)].push_back(move);
  // Compresses first, because that frees room in both other tiers.
  EBB_RETURN_IF_ERROR(cache_->Move(group, by_tier[2]));
  const std::span<const RowMove> promoted = by_tier[0], demoted = by_tier[1];
  for (size_t done = 0; done < std::max(promoted.size(), demoted.size()); done += kExchangedRows) {
    for (const auto& rows : {demoted, promoted}) {
      if (done >= rows.size()) continue;
      const auto some = rows.subspan(done, std::min(kExchangedRows, rows.size() - done));
      EBB_RETURN_IF_ERROR(cache_->Move(group, some));
    }
  }
  return OkStatus();
}

void StepSettler::RemoveRows(int group) {
  const size_t num_rows = cache_->positions(group).size();
  cache_->Remove(group, removed_);
  if (!scores_used_ && policy_->selector == nullptr) return;
  KeepAllBut(removed_, num_rows, &scratch_.front());
  Retain(group, scratch_.front().kept);
}

// Fills scratch->kept with all rows except `gone`. If many groups lose one row each, the list
// differs from the previous group's in a few places, so only those are rewritten.
void StepSettler::KeepAllBut(std::span<const uint32_t> gone, size_t num_rows, Scratch* scratch) {
  std::vector<uint32_t>& kept = scratch->kept;
  const bool one = gone.size() == 1;
  if (one && scratch->only_gone && kept.size() + 1 == num_rows) {
    const auto [first, last] = std::minmax(gone.front(), *scratch->only_gone);
    std::iota(kept.begin() + first, kept.begin() + last, first + (first == gone.front()));
  } else {
    kept.resize(num_rows - gone.size());
    uint32_t row = 0;
    auto to = kept.begin();
    for (const uint32_t index : gone) {
      std::iota(to, to + (index - row), row);
      to += index - row;
      row = index + 1;
    }
    std::iota(to, kept.end(), row);
  }
  scratch->only_gone = one ? std::optional(gone.front()) : std::nullopt;
}

void StepSettler::Retain(int group, std::span<const uint32_t> kept) {
  if (scores_used_) policy_->scorer->Retain(group, kept);
  if (totals_) totals_->Retain(group, kept);
  if (policy_->selector != nullptr) policy_->selector->Retain(group, kept);
}

// Compacts the cache and the stores once as many rows as a page holds were removed since the last
// compaction. Without this threshold, a policy that evicts one row per step would free and allocate
// a page at each step.
void StepSettler::Compact(StepKind kind, size_t gone_per_group) {
  rows_removed_since_compaction_ += gone_per_group;
  if (rows_removed_since_compaction_ < kRowsPerPage) return;
  // A page of a table that all streams share is drained entirely or not at all, so the limit is at
  // least such a page.
  const size_t per_step = std::max(
      kCompactBytesPerStep, cache_->layout().format().PageBytes() * cache_->layout().num_streams());
  const size_t max_bytes =
      kind == StepKind::kPrefill ? std::numeric_limits<size_t>::max() : per_step;
  const size_t in_tables = cache_->Compact(max_bytes);
  const size_t in_arena = stores_->Compact(max_bytes);
  // If the step's bytes were used up, the next step continues to compact.
  if (std::max(in_tables, in_arena) < max_bytes / 2) rows_removed_since_compaction_ = 0;
}

void StepSettler::CompactAll() {
  constexpr size_t kAll = std::numeric_limits<size_t>::max();
  cache_->Compact(kAll);
  stores_->Compact(kAll);
  rows_removed_since_compaction_ = 0;
}

void StepSettler::TruncateTo(Position end) {
  if (options_->explained.has_value() && *options_->explained >= end) explanations_.clear();
  ShowRows();
  if (ledger_ != nullptr) ledger_->TruncateTo(end);
  if (!scores_used_ && policy_->selector == nullptr) return;
  for (int group = 0; group < cache_->layout().num_groups(); ++group) {
    const auto positions = cache_->positions(group);
    const size_t left =
        std::lower_bound(positions.begin(), positions.end(), end) - positions.begin();
    Scratch& scratch = scratch_.front();
    scratch.kept.resize(left);
    std::iota(scratch.kept.begin(), scratch.kept.end(), 0);
    scratch.only_gone.reset();
    Retain(group, scratch.kept);
  }
}

void StepSettler::AppendReadRows(Position end) {
  BeginLedger(end);
  if (!scores_used_) return;
  positions_.resize(end);
  std::iota(positions_.begin(), positions_.end(), 0);
  for (int group = 0; group < cache_->layout().num_groups(); ++group) {
    policy_->scorer->Append(group, positions_);
    if (totals_) totals_->Append(group, positions_.size());
  }
}

void StepSettler::ShowKeysToSelector(Position first,
                                     const std::vector<std::span<const float>>& keys,
                                     int num_tokens) {
  positions_.resize(num_tokens);
  std::iota(positions_.begin(), positions_.end(), first);
  const StepSignals step = {
      .kind = StepKind::kPrefill, .first_position = first, .num_tokens = num_tokens, .keys = keys};
  for (int group = 0; group < cache_->layout().num_groups(); ++group) {
    policy_->selector->Append(group, positions_);
    policy_->selector->ObserveGroup(group, GroupSignals{}, step);
  }
}

void StepSettler::BeginLedger(Position next_position) {
  if (ledger_ == nullptr) return;
  ledger_->Append(next_position);
  for (int group = 0; group < cache_->layout().num_groups(); ++group) {
    ledger_->Reconcile(group, cache_->positions(group), cache_->tiers(group));
  }
}

void StepSettler::EndFirstPrefill() {
  policy_->scorer->EndFirstPrefill();
  if (totals_) totals_->EndFirstPrefill();
}

Status StepSettler::SaveState(StateWriter* to) const {
  to->Number<uint64_t>(rows_removed_since_compaction_);
  if (scores_used_) {
    // Computes all scores before saving. A scorer with totals receives them only here, and a scorer
    // that computes scores on demand needs the last step's signals, which are not saved.
    for (int group = 0; group < cache_->layout().num_groups(); ++group) (void)ScoresOf(group);
    EBB_RETURN_IF_ERROR(policy_->scorer->SaveState(to));
  }
  if (policy_->placement != nullptr) EBB_RETURN_IF_ERROR(policy_->placement->SaveState(to));
  return policy_->selector != nullptr ? policy_->selector->SaveState(to) : OkStatus();
}

Status StepSettler::LoadState(StateReader* from) {
  rows_removed_since_compaction_ = from->Number<uint64_t>();
  if (scores_used_) {
    EBB_RETURN_IF_ERROR(policy_->scorer->LoadState(from));
    for (int group = 0; group < cache_->layout().num_groups(); ++group) {
      if (policy_->scorer->Scores(group).size() != cache_->positions(group).size()) {
        from->Fail("scores of another number of rows");
      }
      if (totals_ && from->ok()) totals_->Resume(group, policy_->scorer->Scores(group));
    }
  }
  if (policy_->placement != nullptr) EBB_RETURN_IF_ERROR(policy_->placement->LoadState(from));
  if (policy_->selector != nullptr) {
    EBB_RETURN_IF_ERROR(policy_->selector->LoadState(from));
    for (int group = 0; group < cache_->layout().num_groups(); ++group) {
      if (policy_->selector->NumRows(group) != cache_->positions(group).size()) {
        from->Fail("a selection among another number of rows");
      }
    }
  }
  return from->status();
}

}  // namespace ebb
