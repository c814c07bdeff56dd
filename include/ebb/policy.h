// Policies decide which rows of the cache stay, move to another tier or are evicted. A policy has a
// scorer, which turns signals into one number per row, and a placement, which turns scores and a
// budget into moves. Both read views and return decisions: they never touch the cache's memory,
// never lock, and allocate nothing per token beyond their own growing arrays. Equal events and
// seeds lead to equal decisions. Of two rows with equal scores the one at the lower position stays.
//
// Policies name a row by its index in its group's visible list, which is sorted by position: row 0
// is the oldest surviving row. When rows are removed, Retain() receives the indices that survive,
// in order.
//
// The number of groups depends on the granularity: kToken has one group; kLayer one for each layer;
// kHead one for each (layer, kv head) pair, numbered layer by layer. Layers may have different
// numbers of kv heads (ModelShape::NumKvHeads()). The cache itself removes rows of a layer with a
// sliding window once no later query sees them, and reports that by Retain() like any other
// removal, before Place().
//
// Thread safety: one object belongs to one sequence. All calls come from one thread at a time,
// except the calls that GroupsAreIndependent() allows to run at once.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_POLICY_H_
#define EBB_POLICY_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/recent_windows.h"
#include "ebb/signals.h"
#include "ebb/status.h"
#include "ebb/tiers.h"
#include "ebb/types.h"

namespace [[gnu::visibility("default")]] ebb {

class PolicyRegistry;
class StateReader;
class StateWriter;

// Foresight knows the attention that rows will receive, for the policy "oracle". Only a replay of
// given tokens can know it (ebb/lab/foresight.h); other sessions have no foresight.
class Foresight {
 public:
  virtual ~Foresight() = default;
  Foresight(const Foresight&) = delete;
  Foresight& operator=(const Foresight&) = delete;

  // Fills `left` [positions] with the attention that each of these rows of a group will receive in
  // the decode steps to come. `group` is numbered at the granularity of the policy that asks.
  virtual void AttentionLeft(int group, std::span<const Position> positions,
                             std::span<float> left) const = 0;

 protected:
  Foresight() = default;
};

// Scorer turns signals into a number per row; rows with higher scores are kept longer.
class Scorer {
 public:
  virtual ~Scorer() = default;
  Scorer(const Scorer&) = delete;
  Scorer& operator=(const Scorer&) = delete;

  // Returns the name that results record. REQUIRES: the name changes whenever the scorer's rule
  // changes.
  [[nodiscard]] virtual std::string Name() const = 0;
  [[nodiscard]] virtual SignalNeeds Needs() const = 0;
  // Adds rows at `positions` to the end of `group`. The engine calls it before the step that
  // computes the rows.
  virtual void Append(int group, std::span<const Position> positions) = 0;
  // Receives the signals of a step, [num_groups], new rows included. The engine calls it once for
  // each step, or never if Needs() is empty. Unless overridden, calls ObserveGroup() for each group
  // in order.
  virtual void Observe(std::span<const GroupSignals> groups, const StepSignals& step);
  virtual void ObserveGroup(int /*group*/, const GroupSignals&, const StepSignals&) {}
  // Returns the signal whose sum over steps is all that this scorer uses. The engine may then keep
  // the sums (src/policy/mass_totals.h) instead of calling Observe(), and pass them to TakeTotal()
  // before it calls Scores() or SaveState(); both ways give the same bits. Scores() must then
  // return the sums themselves, also after LoadState().
  [[nodiscard]] virtual MassTotal Total() const { return MassTotal::kNone; }
  // Receives the sum for each row of the group, in order. REQUIRES: Total() is not kNone.
  virtual void TakeTotal(int /*group*/, std::span<const float> /*total*/) {}
  // Removes all rows of the group except those at the ascending indices `kept`, which get the
  // indices 0, 1, 2, ... in this order.
  virtual void Retain(int group, std::span<const uint32_t> kept) = 0;
  // Marks the end of the sequence's first prefill ("Not All Thoughts Need HBM", Algorithm 1, line
  // 1).
  virtual void EndFirstPrefill() {}
  // Returns one finite score per row of the group. The span is valid until the next call for this
  // group; if GroupsAreIndependent() is false, until the next call on this object.
  [[nodiscard]] virtual std::span<const float> Scores(int group) = 0;
  // Returns whether ObserveGroup(), Retain(), Scores() and Prefetch() of different groups share no
  // data, so that several threads may call them at once, one thread for each group. The engine then
  // does not call Observe(). REQUIRES: a scorer that returns true does not override Observe().
  [[nodiscard]] virtual bool GroupsAreIndependent() const { return false; }
  // Returns whether the scorer compares keys of different steps with each other or with queries, as
  // they are after RoPE. The engine then must not re-rotate keys.
  [[nodiscard]] virtual bool ComparesKeys() const { return false; }
  // Prefetches the group's data from memory, as a hint that the group is the next one to be
  // observed or placed. Changes nothing.
  virtual void Prefetch(int group) const { static_cast<void>(group); }
  // SaveState() and LoadState() save and restore the state of a sequence. The engine calls
  // LoadState() on a fresh object of the same Name(), with the bytes that SaveState() wrote;
  // LoadState() calls StateReader::Fail() if they make no sense. Unless overridden, both return
  // Unsupported, and such a sequence cannot be saved.
  [[nodiscard]] virtual Status SaveState(StateWriter* to) const;
  [[nodiscard]] virtual Status LoadState(StateReader* from);
  // Returns whether prefill changes nothing in this scorer except by Append(), however the prompt
  // is cut into steps. Prefix caching requires that: a sequence may then take over the rows of
  // another sequence that has read the same beginning.
  [[nodiscard]] virtual bool IgnoresPrompts() const { return false; }

 protected:
  Scorer() = default;
};

// PlacementInput holds the facts that a placement may use besides the scores.
struct PlacementInput {
  int group = 0;
  int num_groups = 1;
  // Holds the rows' positions in the sequence. Re-rotating keys does not change them.
  std::span<const Position> positions = {};  // [num_rows], ascending
  std::span<const Tier> tiers = {};          // [num_rows]; empty: all in T0
  std::span<const float> scores = {};        // [num_rows]; empty when the placement asks for none
  std::span<const TokenKind> kinds = {};     // by position, [next_position]
  Position first_generated = 0;              // position of the first generated token; next_position
                                             // while there is none
  Position next_position = 0;                // tokens so far
  int64_t generated_tokens = 0;              // so far, with this step's; intervals count these
  // Counts the tokens of this step. A decode step has 1; one that reads tokens of a prompt lookup
  // may have more, and may then pass a multiple of an interval without ending on it. 0: the engine
  // makes room between steps.
  int new_tokens = 1;
  StepKind step_kind = StepKind::kDecode;
  size_t tokens_to_come = 0;  // tokens of the prompt's next step; 0 at its end and in decode
};

// Move names the new tier of a row.
struct Move {
  uint32_t row = 0;  // index in the visible list
  Tier to = Tier::kT3;
  bool operator==(const Move&) const = default;
};

// Expiry names a row that queries at positions beyond `last_visible` must not see.
struct Expiry {
  uint32_t row = 0;  // index in the visible list
  Position last_visible = 0;
};

// kAnyStep is Placement::LongestStep() of a placement that does not limit steps.
inline constexpr int kAnyStep = std::numeric_limits<int>::max();

// Placement turns scores and budgets into moves.
class Placement {
 public:
  virtual ~Placement() = default;
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  [[nodiscard]] virtual std::string Name() const = 0;
  // Returns whether Place() reads scores. If not, the engine skips scoring altogether (streaming).
  [[nodiscard]] virtual bool NeedsScores() const = 0;
  // Checks that the rows that must stay fit. Errors, with the figures: InvalidArgument (the budget
  // is too small) or T0Full (the caps of the tiers are). The engine calls it for one group, whose
  // positions and scores may be empty: before it reads a prompt, before the step that follows a
  // refusal by the caps, and with tiers before each Place().
  [[nodiscard]] virtual Status Check(const PlacementInput&) const { return OkStatus(); }
  // Returns whether the engine should call Place() after this step, for a group with `num_rows`
  // rows. Positions and scores may be empty.
  [[nodiscard]] virtual bool Due(const PlacementInput& input, size_t num_rows) const = 0;
  // Appends moves to `moves` in ascending row order, at most one for each row.
  virtual void Place(const PlacementInput& input, std::vector<Move>* moves) = 0;
  // Returns why Place() puts this row of the input where it does: the rule, and the row's score and
  // rank if scores decide. The base class returns score, rank and Name(). REQUIRES: an input that
  // Place() may have.
  [[nodiscard]] virtual std::string Explain(const PlacementInput& input, size_t row) const;
  // Sets the share that T0 keeps, of the rows of T0 and T1 that may leave T0. Place() with a
  // prefill's input then divides them again and does nothing else. Returns false, and changes
  // nothing, if the placement has no such share.
  [[nodiscard]] virtual bool SetT0Share(double /*share*/) { return false; }
  // Returns whether Due() and Place() of different groups share no data; see Scorer.
  [[nodiscard]] virtual bool GroupsAreIndependent() const { return false; }
  // Appends the rows that only the first queries of the coming step may see. The engine calls it
  // before the step, with next_position after the step, for placements that remove rows at
  // positions within a step. A step then has at most LongestStep() tokens, so that every row that
  // expires within the step is known before it. Rows that Place() does not evict after the step are
  // visible again. REQUIRES: NeedsScores().
  virtual void FindExpiring(const PlacementInput&, std::vector<Expiry>*) const {}
  [[nodiscard]] virtual int LongestStep() const { return kAnyStep; }
  // Returns the number of newest tokens whose rows FindExpiring() may still name. Rows of T2 cannot
  // be hidden within a step, so tiers compress no row of these tokens.
  [[nodiscard]] virtual int DecidedAfter() const { return 0; }
  // RowsAfter() and Interval() forecast evictions. RowsAfter() returns the most rows of a group
  // that a decision after `num_tokens` tokens leaves, the first `num_given` of which were given.
  // The base class evicts none. Interval() returns the generated tokens between two decisions.
  [[nodiscard]] virtual size_t RowsAfter(size_t num_tokens, size_t /*num_given*/,
                                         StepKind /*kind*/) const {
    return num_tokens;
  }
  [[nodiscard]] virtual int Interval() const { return 1; }
  // SaveState() and LoadState() save and restore the placement's state; see Scorer.
  [[nodiscard]] virtual Status SaveState(StateWriter* to) const;
  [[nodiscard]] virtual Status LoadState(StateReader* from);

 protected:
  Placement() = default;
};

// Selector chooses, inside a step, which of its rows a layer reads for the current query (sparse
// attention). It frees no row.
class Selector {
 public:
  virtual ~Selector() = default;
  Selector(const Selector&) = delete;
  Selector& operator=(const Selector&) = delete;

  [[nodiscard]] virtual std::string Name() const = 0;
  [[nodiscard]] virtual SignalNeeds Needs() const = 0;
  virtual void Append(int group, std::span<const Position> positions) = 0;
  // Receives the signals of a step; see Scorer.
  virtual void Observe(std::span<const GroupSignals> groups, const StepSignals& step);
  virtual void ObserveGroup(int /*group*/, const GroupSignals&, const StepSignals&) {}
  virtual void Retain(int group, std::span<const uint32_t> kept) = 0;
  // Prepares Select() on several threads. Before Select() of a kv head, the engine calls it once
  // for each part, 0 to num_parts - 1, with the same q. Calls for different parts, and calls for
  // different kv heads, may run at once. Must not throw.
  virtual void Rank(int /*layer*/, int /*kv_head*/, std::span<const float> /*q*/, int /*part*/,
                    int /*num_parts*/) {}
  // Adds to `rows` the rows that a token reads in this kv head: ascending ranges with rows between
  // them; no range: the token reads all rows. `rows` is empty and has room for a range for every
  // second row. q: [query heads of the kv head, head_dim], after RoPE. Calls for different kv heads
  // may run at once. Must not throw.
  virtual void Select(int layer, int kv_head, std::span<const float> q,
                      std::vector<RowRange>* rows) = 0;
  // Adds to `rows` the ranges that the next token would read in this kv head if it reused this
  // token's choice, so that the engine can read them ahead. Adds none if that is not known. `rows`
  // is as for Select(). The engine calls it after Select() of the kv head, on the same thread. Must
  // not throw.
  virtual void Foresee(int /*layer*/, int /*kv_head*/, std::vector<RowRange>* /*rows*/) const {}
  // Returns an estimate of the share of the attention that the choices so far left unread: the mean
  // over query heads.
  [[nodiscard]] virtual double EstimatedUnreadMass() const { return 0; }
  // Returns how many rows of the group the selector knows. ResumeSession() compares it with the
  // cache's number of rows.
  [[nodiscard]] virtual size_t NumRows(int group) const = 0;
  // Returns, for prefix caching, how many of the first `num_rows` rows of each group another
  // selector can learn from this one by TakeFirstRows(); nullopt: this selector shares no prefix.
  [[nodiscard]] virtual std::optional<size_t> NumRowsToShare(size_t /*num_rows*/) const {
    return std::nullopt;
  }
  // Takes over the first `num_rows` rows of each group from `from`. The engine then appends the
  // prefix's remaining rows and calls ObserveGroup() for them, with their keys alone. May throw
  // std::bad_alloc. REQUIRES: this selector knows no row; num_rows is from.NumRowsToShare(); `from`
  // has the same kind and parameters.
  virtual void TakeFirstRows(const Selector& /*from*/, size_t /*num_rows*/) {}
  // Returns whether the selector compares keys of different steps; see Scorer.
  [[nodiscard]] virtual bool ComparesKeys() const { return false; }
  // SaveState() and LoadState() save and restore the selector's state; see Scorer.
  [[nodiscard]] virtual Status SaveState(StateWriter* to) const;
  [[nodiscard]] virtual Status LoadState(StateReader* from);

 protected:
  Selector() = default;
};

// KeyTurns selects when keys are re-rotated so that surviving rows have consecutive RoPE positions.
enum class KeyTurns {
  kWhenFull,       // when the context is full, where the session allows it; from place 0 on
  kAfterEviction,  // whenever rows went (StreamingLLM, 3.2), up to the newest; when it is full, as
                   // above
};

// Budget limits the rows that stay in the cache. kRows counts tokens per group; kBytes counts bytes
// of all (layer, kv head) pairs together; kPercent is a share of PolicyInfo::percent_of. kRows and
// kBytes include protected rows; MakePolicy() refuses a budget that is too small for these. kBeyond
// counts the rows beyond the protected ones ("EpiKV", App. D). kCompression is the compression
// ratio CR of "Inference-Time Hyper-Scaling" (App. F.1): (input + maximum generation) / CR rows,
// rounded down.
struct Budget {
  enum class Unit { kNone, kRows, kPercent, kBytes, kBeyond, kCompression };
  Unit unit = Unit::kNone;
  double value = 0;

  bool operator==(const Budget&) const = default;
};

// PolicySpec holds everything that a user can say about a policy. Options that are not set take the
// policy's own defaults.
struct PolicySpec {
  std::string name = "full";
  std::map<std::string, std::string> params = {};  // --policy NAME:key=value,...
  std::string scorer = {};                         // --scorer; empty: the policy's own
  Budget budget = {};
  std::optional<int> sinks = {};     // tokens
  std::optional<int> window = {};    // tokens
  std::optional<int> interval = {};  // generated tokens
  std::optional<Granularity> granularity = {};
  // Counts input and maximum generation in tokens, of which kCompression takes a share; the context
  // of the session if not set.
  std::optional<int> most_tokens = {};
  // Selects the rows that decode steps read: "quest:rows=1024,page=16" (or "quest:share=25%"): the
  // pages that Quest chooses. Empty: the rows that the policy or TierShares::t1_read selects.
  std::string read = {};
  // Places in tiers the rows that stay. The policy evicts rows if it has a budget or numbers of
  // rows among its parameters, if the model marks rows for it, or if tiers place rows by position
  // alone (T2Rows::kOld, T1Read::kSelect). Otherwise it only ranks rows for the tiers.
  std::optional<TierShares> tiers = {};
  uint64_t seed = 0;

  bool operator==(const PolicySpec&) const = default;
};

// Policy is a scorer, a placement and a selector at a granularity, made for one sequence.
struct Policy {
  std::string name;  // the name that was asked for: "h2o", "h2o+scorer=random"
  // Holds the specification with every default that MakePolicy() chose. Two policies with equal
  // identities, for the same model, make the same decisions about the same tokens. The name
  // includes the scorer's name; the seed is 0 if the scorer draws no random numbers. Nothing: the
  // identity is not known, and sessions share no prefixes.
  std::optional<PolicySpec> identity = {};
  Granularity granularity = Granularity::kToken;
  KeyTurns key_turns = KeyTurns::kWhenFull;
  bool looks_ahead = false;              // its scorer asks PolicyContext::foresight
  std::unique_ptr<Scorer> scorer;        // never null
  std::unique_ptr<Placement> placement;  // null: nothing ever moves
  std::unique_ptr<Selector> selector;    // null: every visible row is read
};

// Parses "1024" (rows), "25%", "64MiB", "+512" (rows beyond the protected) or "1/8" (compression
// ratio 8). Errors: InvalidArgument.
[[nodiscard]] Result<Budget> ParseBudget(std::string_view text);
// Returns "1024 rows", "25%", "1024 bytes", "+512 rows" or "1/8".
[[nodiscard]] std::string FormatBudget(const Budget& budget);

// kDefaultSinks and kDefaultInterval, with kDefaultWindow (recent_windows.h), are the protection of
// "Not All Thoughts Need HBM" (3.2 and 3.3); policies of other papers have defaults of their own.
inline constexpr int kDefaultSinks = 4;      // tokens
inline constexpr int kDefaultInterval = 64;  // generated tokens

// Parses "h2o:heavy=64,recent=64" into name and params. A prefix "windowed:" becomes part of the
// name.
[[nodiscard]] Status ParsePolicy(std::string_view text, PolicySpec* spec);

// RunParts calls work(0) to work(num_parts - 1), several at once on the threads of the step.
// REQUIRES: the parts share no data and do not throw; the caller is Observe(), ObserveGroup(),
// Scores() or Retain() of a scorer whose GroupsAreIndependent() is false, and is not itself inside
// `work`. Valid while the engine lives.
using RunParts = std::function<void(int num_parts, const std::function<void(int part)>& work)>;

// RowsAvailable holds the rows of each (layer, kv head) that fit into T0 and T1 under their caps,
// less one page each, since the last page is rarely full. The engine computes them, so that
// policies need not know bytes or pages.
struct RowsAvailable {
  static constexpr size_t kNoCap = std::numeric_limits<size_t>::max();
  size_t t0 = kNoCap;
  size_t t1 = kNoCap;
};

// PolicyContext describes the cache that a policy is made for.
struct PolicyContext {
  ModelShape shape;
  size_t row_bytes = 0;               // bytes of one row (key and value) of one (layer, kv head)
  size_t compressed_row_bytes = 0;    // bytes of the same row in T2; 0: there is no T2
  int max_tokens = 0;                 // the context that the session was opened with
  EngineTiers tiers = {};             // with the caps that the sequence keeps its rows within
  RowsAvailable rows_available = {};  // under these caps
  // Knows the future attention, from a replay; null: unknown. REQUIRES: outlives the policy.
  const Foresight* foresight = nullptr;
  int eviction_window = 0;  // Model::eviction_window()
  int eviction_shift = 1;   // Model::eviction_shift()
  // Sets the share of rows that RowsAfter() expects a model to leave unmarked, as 1 of this number
  // (Model::trained_compression()); 1: all rows.
  double expected_compression = 1;
  float attention_scale = 0;                 // Model::attention_scale(); 0: 1 / sqrt(head_dim)
  RunParts run_parts = {};                   // empty: on the calling thread
  const PolicyRegistry* registry = nullptr;  // whose names it may have; null: built-in ones
};

// PolicyInfo describes a built-in policy, for help texts.
struct PolicyInfo {
  std::string_view name;
  std::string_view description;  // one line
  std::string_view source;       // paper and equation, or published code
  std::string_view params;       // "heavy=N,recent=N", beside its scorer's; empty: none
  Granularity granularity;
  std::string_view scorer;           // its own scorer
  std::string_view percent_of = {};  // what a budget in percent is a share of; empty: takes none
};
// Returns all built-in policies.
[[nodiscard]] std::span<const PolicyInfo> BuiltinPolicies();
// Returns the built-in policy that `name` selects: "h2o", or "windowed:h2o:w=4+scorer=random",
// which modifies it; null: there is no such policy.
[[nodiscard]] const PolicyInfo* FindBuiltinPolicy(std::string_view name);

// ScorerInfo describes a built-in scorer, for help texts.
struct ScorerInfo {
  std::string_view name;
  std::string_view description;
  std::string_view params = {};  // of a policy with this scorer; empty: none
};
// Returns all built-in scorers.
[[nodiscard]] std::span<const ScorerInfo> BuiltinScorers();

// PolicyExtension describes a program's own policy. It decides as `attention` does (the prompt,
// sinks and a window stay; a budget says how much else stays), with a scorer that the program
// supplies. See examples/policy.cc.
struct PolicyExtension {
  std::string name;
  std::string description;  // one line
  Granularity granularity = Granularity::kToken;
  // Context describes what a scorer is made for. Its granularity may differ from the policy's,
  // since --granularity overrides that.
  struct Context {
    ModelShape shape;
    Granularity granularity = Granularity::kToken;
    uint64_t seed = 0;
    [[nodiscard]] int NumGroups() const { return shape.NumGroups(granularity); }
  };
  std::function<std::unique_ptr<Scorer>(const Context&)> make_scorer;  // never returns null
};

// PolicyRegistry holds policies by name: the built-in ones, and those that a program adds.
// EngineOptions::policies gives one to an engine.
//
// Thread safety: a registry that is being changed belongs to one thread. Any number of threads may
// read a registry that nothing changes, so engines of several threads may share it.
class PolicyRegistry {
 public:
  PolicyRegistry();
  ~PolicyRegistry();
  PolicyRegistry(const PolicyRegistry&) = delete;
  PolicyRegistry& operator=(const PolicyRegistry&) = delete;

  // Adds a policy, and a scorer of the same name. Errors: InvalidArgument (no make_scorer; a name
  // that is empty, taken, or has other characters than a-z, 0-9 and _).
  [[nodiscard]] Status Add(PolicyExtension extension);
  // Removes an added policy and its scorer. Sessions that use it continue. Errors: NotFound (it was
  // not added).
  [[nodiscard]] Status Remove(std::string_view name);

  struct Tables;
  [[nodiscard]] const Tables& tables() const { return *tables_; }

 private:
  std::unique_ptr<Tables> tables_;
};

// Returns `spec` without the budget, sinks, window and interval that its policy does not use, so
// that one set of options can be applied to many policies. A null registry means the built-in
// policies. Errors: unknown policy or scorer.
[[nodiscard]] Result<PolicySpec> DropUnusedOptions(PolicySpec spec,
                                                   const PolicyRegistry* registry = nullptr);

// Returns whether the policy itself decides which rows leave, instead of keeping all rows or
// ranking them for the tiers. Returns false for a spec that MakePolicy() refuses.
[[nodiscard]] bool EvictsByItself(const PolicySpec& spec, const PolicyRegistry* registry = nullptr);

// Returns whether spec.seed affects any decision. Returns true for added policies, which may use
// it. Errors: unknown policy or scorer.
[[nodiscard]] Result<bool> IsRandomized(const PolicySpec& spec,
                                        const PolicyRegistry* registry = nullptr);

// Makes the policy of `spec`. Errors: unknown policy, scorer or parameter (the message lists the
// valid ones); values out of range; a budget in rows or bytes that is smaller than sinks + window;
// a scorer that needs a foresight, without one; a scorer that reads a model's marks, for a model
// that marks no rows.
[[nodiscard]] Result<Policy> MakePolicy(const PolicySpec& spec, const PolicyContext& context);

}  // namespace ebb

#endif  // EBB_POLICY_H_
