// Settles a computed step: shows its signals to the policy, applies the policy's decisions to the
// cache, and compacts and sorts rows and memory. No other file knows both policies and caches.
#ifndef EBB_SEQUENCE_STEP_SETTLER_H_
#define EBB_SEQUENCE_STEP_SETTLER_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ebb/policy.h"
#include "ebb/report.h"
#include "ebb/state.h"
#include "src/base/fetch_ahead.h"
#include "src/kv/sequence_cache.h"
#include "src/policy/mass_totals.h"
#include "src/sequence/roll_back.h"
#include "src/sequence/tier_stores.h"
#include "src/step/graph_runner.h"
#include "src/step/work/signal_buffers.h"

namespace ebb {

// Decides selects whether the placement is called after a step.
enum class Decides { kYes, kNo };

class StepSettler {
 public:
  // Makes a settler. `ledger` may be null. REQUIRES: all arguments outlive it.
  StepSettler(Policy* policy, SequenceCache* cache, SignalBuffers* signals, TierStores* stores,
              const SessionOptions* options, Ledger* ledger, GraphRunner* runner,
              const WindowCheckpoints* checkpoints);

  // Returns the signals that the policy's scorer and selector need.
  static SignalNeeds Needs(const Policy& policy);
  // Returns whether the placement reads the scorer's scores.
  static bool UsesScores(const Policy& policy);
  // Returns whether the policy compares keys of different steps, which then must not be re-rotated.
  static bool ComparesKeys(const Policy& policy);

  // Notifies scorer and selector of the step's new rows, which are in the cache and will be
  // computed, and hides the rows that expire within the step.
  void BeginStep(Position first, int num_tokens);
  // Returns whether some rows are visible to the first tokens of this step only.
  [[nodiscard]] bool HasExpiringRows() const { return !hiding_.empty(); }
  // Shows the step to scorer and selector, removes rows that have left sliding windows, applies the
  // placement's moves, then compacts and sorts. Returns the number of evicted (layer, kv head,
  // token) triples. Errors: a tier has no room for the policy's moves, or its file fails. After an
  // error, rows that some groups had already decided to evict stay evicted.
  Result<int64_t> EndStep(const PlacementInput& facts, Decides decides);
  // Returns whether the last EndStep() evicted, moved or compressed rows by the placement's
  // decision; rows that only left a sliding window do not count.
  [[nodiscard]] bool has_placed_rows() const { return has_placed_rows_; }
  // Returns whether the placement decides about some group after a step that leaves the sequence
  // with these facts and every group with `num_more` more rows than now.
  [[nodiscard]] bool IsDue(PlacementInput facts, size_t num_more) const;
  // Returns whether caps may limit the rows: the cache has tiers below T0, or the session has
  // tiers, whose caps may be on T0 alone.
  [[nodiscard]] bool CapsMayBind() const;
  // Returns whether rows that left a sliding window may stay for a checkpoint. They may not if a
  // placement would count them. Nor may they on a device, which would read them in each step and
  // mask them out: that changes the order of its sums and so its bits.
  [[nodiscard]] bool MayKeepRowsBehindWindows() const;
  // Removes, between steps, the rows that have left sliding windows and that neither the query at
  // `next` nor a checkpoint needs.
  void ExpireAll(Position next);
  // Checks that the caps hold the decided rows once the last `num_to_come` tokens of `facts`, which
  // belong to a prompt, have their rows. Errors: those of Placement::Check().
  [[nodiscard]] Status Check(PlacementInput facts, size_t num_to_come = 0) const;
  // Places rows between steps by their current scores, and compacts.
  [[nodiscard]] Status MakeRoom(const PlacementInput& facts);
  // Divides rows among T0 and T1 between steps by their current scores, whether or not the
  // placement is due.
  [[nodiscard]] Status DivideAnew(PlacementInput facts);
  // Moves all rows of T0 to T1, between steps. REQUIRES: there is a T1.
  [[nodiscard]] Status Park();
  // Forgets rows from position `end` on, because the step was undone or the sequence rolled back.
  void TruncateTo(Position end);
  void EndFirstPrefill();
  // Returns the scorer's scores of a group, after passing it the totals that the settler keeps for
  // it. REQUIRES: NeedsScores().
  [[nodiscard]] std::span<const float> ScoresOf(int group) const;
  // Notifies the scorer and the ledger that the cache took over the rows of a prompt's first `end`
  // tokens from another cache. REQUIRES: if scores are used, the scorer ignores prompts.
  void AppendReadRows(Position end);
  // Appends the rows of `num_tokens` positions to the selector, and shows it their keys, by layer.
  void ShowKeysToSelector(Position first, const std::vector<std::span<const float>>& keys,
                          int num_tokens);
  // Starts the ledger of a resumed cache at this position. The ledger then knows where the rows
  // are, but not how they came there.
  void BeginLedger(Position next_position);

  // Returns the explanations of decisions; see Session::explanations().
  [[nodiscard]] std::span<const Explanation> explanations() const { return explanations_; }
  // Returns, between steps, the reasons why the placement would keep, move or evict the token's
  // rows by their current scores: an Explanation for each group; none without a placement.
  [[nodiscard]] std::vector<Explanation> ExplainNow(PlacementInput facts, Position position) const;

  [[nodiscard]] Status SaveState(StateWriter* to) const;
  // Loads the state of the policy. Errors: Corrupt if its scores do not fit the rows. REQUIRES: the
  // cache has its rows.
  [[nodiscard]] Status LoadState(StateReader* from);

 private:
  // GroupDecision holds the placement's decision for a group. Evicted rows are removed at once;
  // decided_ keeps the other moves until MoveDecided().
  struct GroupDecision {
    int group = 0;
    std::vector<RowMove> moves;           // between tiers
    std::vector<Ledger::Change> changes;  // empty without a ledger
  };
  // Scratch holds buffers for deciding about a group; each part has its own.
  struct alignas(kCacheLineBytes) Scratch {
    std::vector<Move> moves;
    std::vector<uint32_t> kept;
    std::optional<uint32_t> only_gone;  // all that kept leaves out, where that is one row
    SequenceCache::Removal::Lists removal_lists;
    std::optional<SequenceCache::Removal> removal;  // while threads decide, as the next
    size_t most_gone = 0;                           // rows of one group
  };
  static void KeepAllBut(std::span<const uint32_t> gone, size_t num_rows, Scratch* scratch);
  void PrefetchGroup(const PlacementInput& facts, int group) const;
  void ObserveInTurn();
  // Decides group after group on this thread.
  [[nodiscard]] Status DecideInTurn(const PlacementInput& facts, Decides decides);
  void DecideOnThreads(const PlacementInput& facts, Decides decides);
  void DecideApart(PlacementInput facts, int group, Decides decides, Scratch* scratch);
  // Sets the facts of one group, except its scores and tiers.
  void TurnTo(int group, PlacementInput* facts) const;
  // Place() lets the placement decide about a group if it is due. PlaceNow() does so in any case,
  // and with tiers calls Placement::Check() first.
  [[nodiscard]] Status Place(PlacementInput facts, int group);
  [[nodiscard]] Status PlaceNow(PlacementInput facts, int group);
  // Records why this decision puts the row of SessionOptions::explained where it does.
  void Explain(const PlacementInput& facts, std::span<const Move> moves);
  // Records why the row of SessionOptions::explained goes if it is one of removed_, which Expire()
  // removes.
  void ExplainExpired(int group, Position next);
  // Records the explained row's destination and the reason. Among decisions that do not move the
  // row, only the first and the latest are kept.
  void AddExplanation(int group, Tier tier, Position num_tokens,
                      const std::function<std::string()>& why);
  // Removes the rows that no query at `next` or later sees in layers with a sliding window, except
  // the rows that checkpoints need.
  void Expire(Position next, int group);
  void HideRows(Position first, int num_tokens);
  void ShowRows();
  void Retain(int group, std::span<const uint32_t> kept);
  void RemoveRows(int group);
  Status MoveDecided();
  Status MoveAllOrInTurns();
  Status MoveInTurns(const GroupDecision& decision);
  void Compact(StepKind kind, size_t gone_per_group);
  void CompactAll();

  Policy* const policy_;
  SequenceCache* const cache_;
  SignalBuffers* const signals_;
  TierStores* const stores_;
  const SessionOptions* const options_;
  Ledger* const ledger_;
  const bool scores_used_;
  const bool delays_;  // the placement has rows that expire
  GraphRunner* const runner_;
  const WindowCheckpoints* const checkpoints_;
  const bool decides_in_parallel_;           // several threads may decide, each about other groups
  std::vector<Scratch> scratch_;             // [parts], or one
  std::vector<std::vector<uint32_t>> gone_;  // [groups]: rows that one thread is to remove
  std::optional<MassTotals> totals_;         // where the scorer takes totals instead of steps
  std::vector<GroupSignals> groups_;         // [groups]: the step's signals
  std::vector<GroupDecision> decided_;       // in this step, as the next two
  int64_t num_evicted_ = 0;                  // rows, by the placement or by windows
  int64_t num_expired_ = 0;                  // the part of num_evicted_ that left windows
  bool has_placed_rows_ = false;
  size_t most_gone_ = 0;  // rows of one group that gave up their slots
  std::vector<uint32_t> removed_;
  std::vector<Explanation> explanations_;
  std::vector<Position> positions_;
  std::vector<Expiry> expiring_;
  std::vector<int> hiding_;  // groups some of whose rows expire in this step
  size_t rows_removed_since_compaction_ =
      0;  // rows that gave up their slots, per group, since the last compaction
};

}  // namespace ebb

#endif  // EBB_SEQUENCE_STEP_SETTLER_H_
