// Settles a computed step: the policy sees its signals, the cache carries out the policy's
// decisions, and rows and memory are put in order. The only file that knows both policies and
// caches.
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
#include "src/step/signal_buffers.h"

namespace ebb {

// Whether a placement is asked after a step.
enum class Decides { kYes, kNo };

class StepSettler {
 public:
  // REQUIRES: all outlive the settler. `ledger` may be null.
  StepSettler(Policy* policy, SequenceCache* cache, SignalBuffers* signals, TierStores* stores,
              const SessionOptions* options, Ledger* ledger, GraphRunner* runner,
              const WindowCheckpoints* checkpoints);

  // The signals that the policy itself needs.
  static SignalNeeds Needs(const Policy& policy);
  // Whether the placement reads the scorer's scores.
  static bool UsesScores(const Policy& policy);
  // Whether it compares keys, which then must stay as they are.
  static bool ComparesKeys(const Policy& policy);

  // The step's rows are in the cache and will be computed.
  void BeginStep(Position first, int num_tokens);
  // Whether some rows are visible to the first tokens of this step alone.
  [[nodiscard]] bool HasExpiringRows() const { return !hiding_.empty(); }
  // Shows the step to scorer and selector, removes rows that left windows, places, moves, compacts,
  // sorts. Returns the rows evicted, (layer, kv head, token) triples. Fails when a tier has no room
  // for the policy's moves, or its file fails. After an error some groups may have decided: their
  // evicted rows are gone.
  Result<int64_t> EndStep(const PlacementInput& facts, Decides decides);
  // Whether the cache has tiers below T0 or the policy was given a `TierSpec`, which may cap T0
  // alone.
  [[nodiscard]] bool CapsMayBind() const;
  // Whether rows that left a window may stay for a checkpoint: there is no placement that would
  // count them, and no device, which would read them in each step and hide them by its masks: that
  // changes the order of its sums, and so its bits.
  [[nodiscard]] bool MayKeepRowsBehindWindows() const;
  // Between steps: removes rows that neither the query at `next` nor a checkpoint needs.
  void ExpireAll(Position next);
  // Checks that the caps hold the decided rows once the last `num_to_come` tokens that `facts`
  // count, of a prompt, have their rows.
  [[nodiscard]] Status Check(PlacementInput facts, size_t num_to_come = 0) const;
  // Between steps: places rows by the scores that they have, and compacts.
  [[nodiscard]] Status MakeRoom(const PlacementInput& facts);
  // Divides rows among T0 and T1 again between steps, by the scores that they have.
  [[nodiscard]] Status DivideAnew(PlacementInput facts);
  // Between steps: moves all rows of T0 to T1. REQUIRES: there is a T1.
  [[nodiscard]] Status Park();
  // The step's rows were taken out of the cache again, or the sequence was rolled back.
  void TruncateTo(Position end);
  void EndFirstPrefill();
  // The scorer's, to which totals that are kept for it have been given. REQUIRES: NeedsScores().
  [[nodiscard]] std::span<const float> ScoresOf(int group) const;
  // The cache took the rows of the first `end` tokens of a prompt from another one's.
  // REQUIRES: a scorer, where scores are used, that ignores prompts.
  void AppendReadRows(Position end);
  // Appends the rows of `num_tokens` positions to the selector, and shows their keys to it, by
  // layer.
  void ShowKeysToSelector(Position first, const std::vector<std::span<const float>>& keys,
                          int num_tokens);
  // The cache was resumed after so many tokens: the ledger knows where their rows are, not how they
  // came there.
  void BeginLedger(Position next_position);

  // See Session::explanations().
  [[nodiscard]] std::span<const Explanation> explanations() const { return explanations_; }

  [[nodiscard]] Status SaveState(StateWriter* to) const;
  // The cache's rows are there already. Corrupt when scores do not fit them.
  [[nodiscard]] Status LoadState(StateReader* from);

 private:
  // The placement's decision for a group. Rows that it evicts go at once, the others wait in
  // decided_.
  struct GroupDecision {
    int group = 0;
    std::vector<RowMove> moves;           // between tiers
    std::vector<Ledger::Change> changes;  // empty without a ledger
  };
  // Buffers for the decision about a group; each part has its own.
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
  // One group after another, or on all threads where they are apart.
  [[nodiscard]] Status DecideInTurn(const PlacementInput& facts, Decides decides);
  void DecideOnThreads(const PlacementInput& facts, Decides decides);
  void DecideApart(PlacementInput facts, int group, Decides decides, Scratch* scratch);
  // Sets the facts of one group, except its scores and tiers.
  void TurnTo(int group, PlacementInput* facts) const;
  // Place(): if the placement is due. PlaceNow(): always; with tiers Placement::Check() comes
  // first.
  [[nodiscard]] Status Place(PlacementInput facts, int group);
  [[nodiscard]] Status PlaceNow(PlacementInput facts, int group);
  // Records why this decision puts the row of SessionOptions::explained where it does.
  void Explain(const PlacementInput& facts, std::span<const Move> moves);
  // Records where that row goes and why; of decisions that do not move it, the first and the
  // latest.
  void AddExplanation(int group, Tier tier, Position num_tokens,
                      const std::function<std::string()>& why);
  // Removes rows that the query at `next` and later ones do not see, in layers with a window, but
  // for those of checkpoints.
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
  size_t most_gone_ = 0;                     // rows of one group that gave up their slots
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
