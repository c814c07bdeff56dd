// Policies decide which rows of the cache stay, move or go. A policy is a scorer, which turns
// signals into one number per row, and a placement, which turns scores and a budget into moves.
// Both see read-only views and answer decisions: they never touch memory, never lock, and allocate
// nothing per token beyond their own growing arrays. For the same events and seed they decide the
// same. Of two rows with equal scores the one at the lower position stays.
//
// Rows are named by their index in a group's visible list, which is sorted by position: row 0 is
// the oldest surviving row. When rows go, Retain() tells which indices survive, in order.
//
// Groups at a granularity: token: one; layer: one for each layer; head: one for each (layer, kv
// head) pair, numbered layer by layer. Layers may have different numbers of kv heads
// (ModelShape::NumKvHeads()). Rows of layers with a sliding window go by themselves once no later
// query sees them: Retain() tells of that as of any removal, before Place().
//
// Thread safety: one object belongs to one sequence; all calls come from one thread at a time, but
// for those that GroupsAreIndependent() allows beside each other.
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

#include "ebb/signals.h"
#include "ebb/status.h"
#include "ebb/tiers.h"
#include "ebb/types.h"

namespace [[gnu::visibility("default")]] ebb {

class PolicyRegistry;
class StateReader;
class StateWriter;

// The future that the policy "oracle" knows: the attention that rows will receive. Only a replay
// tells it (ebb/lab/foresight.h), so a session has a foresight where its tokens are given, and
// nowhere else.
class Foresight {
 public:
  virtual ~Foresight() = default;
  Foresight(const Foresight&) = delete;
  Foresight& operator=(const Foresight&) = delete;

  // Fills `left` [positions] with the attention that each of these rows of a group, numbered at the
  // granularity of the policy that asks, will receive in the decode steps to come.
  virtual void AttentionLeft(int group, std::span<const Position> positions,
                             std::span<float> left) const = 0;

 protected:
  Foresight() = default;
};

// Turns signals into a number per row; a higher score is kept longer.
class Scorer {
 public:
  virtual ~Scorer() = default;
  Scorer(const Scorer&) = delete;
  Scorer& operator=(const Scorer&) = delete;

  // A contract: recorded in results, and changed whenever the rule changes.
  [[nodiscard]] virtual std::string Name() const = 0;
  [[nodiscard]] virtual SignalNeeds Needs() const = 0;
  // `positions` joined the end of `group`; called before the step that computes them runs.
  virtual void Append(int group, std::span<const Position> positions) = 0;
  // Takes the signals of a step, once for each step, new rows included: [num_groups]. Not called
  // when Needs() is empty. Unless overridden, calls ObserveGroup() for each group in order.
  virtual void Observe(std::span<const GroupSignals> groups, const StepSignals& step);
  virtual void ObserveGroup(int /*group*/, const GroupSignals&, const StepSignals&) {}
  // The signal whose totals over steps are all that the scorer uses. The engine may then keep the
  // totals (src/policy/mass_totals.h) instead of calling Observe(), and give them
  // before it asks for Scores() or SaveState(); both ways give the same bits. Scores() are then the
  // totals themselves, also after LoadState().
  [[nodiscard]] virtual MassTotal Total() const { return MassTotal::kNone; }
  // One number per row of the group, in order. REQUIRES: Total() is not kNone.
  virtual void TakeTotal(int /*group*/, std::span<const float> /*total*/) {}
  // Only the rows at these ascending indices survive, in this order.
  virtual void Retain(int group, std::span<const uint32_t> kept) = 0;
  // The first prefill of the sequence is over (000, Algorithm 1, line 1).
  virtual void EndFirstPrefill() {}
  // One finite score per row of the group. The span lives until the next call for this group; where
  // groups are not apart, until the next call on this object.
  [[nodiscard]] virtual std::span<const float> Scores(int group) = 0;
  // Whether ObserveGroup(), Retain(), Scores() and Prefetch() for different groups touch nothing in
  // common, so that several threads may make them at once, one for each group. Observe() is then
  // not called. REQUIRES: it does not override Observe().
  [[nodiscard]] virtual bool GroupsAreIndependent() const { return false; }
  // Whether it holds keys of different steps, as they stand after RoPE, against each other or
  // against queries: such keys must not be re-rotated.
  [[nodiscard]] virtual bool ComparesKeys() const { return false; }
  // A hint that the group is the next to be observed or decided about: where there are many, their
  // numbers can be on their way from memory meanwhile. Changes nothing.
  virtual void Prefetch(int group) const { static_cast<void>(group); }
  // Writes the state that a sequence in a file keeps; LoadState() is called on a fresh
  // object of the same Name(), with the bytes that SaveState() wrote, and fails the reader where
  // they make no sense. Unsupported unless overridden: such a sequence cannot be saved.
  [[nodiscard]] virtual Status SaveState(StateWriter* to) const;
  [[nodiscard]] virtual Status LoadState(StateReader* from);
  // Whether a prompt leaves nothing in it but what Append() does, however it is cut into steps.
  // Then a sequence may take the rows of a prompt's beginning from another one that has read it.
  [[nodiscard]] virtual bool IgnoresPrompts() const { return false; }

 protected:
  Scorer() = default;
};

// Facts that a placement may use besides the scores.
struct PlacementInput {
  int group = 0;
  int num_groups = 1;
  // Positions in the sequence, also after keys were re-rotated.
  std::span<const Position> positions = {};  // [num_rows], ascending
  std::span<const Tier> tiers = {};          // [num_rows]; empty: all in T0
  std::span<const float> scores = {};        // [num_rows]; empty when the placement asks for none
  std::span<const TokenKind> kinds = {};     // by position, [next_position]
  Position first_generated = 0;              // position of the first generated token; next_position
                                             // while there is none
  Position next_position = 0;                // tokens so far
  int64_t generated_tokens = 0;              // so far, those of this step included;
                                             // intervals count these
  // How many tokens this step had: in decode one, but for guesses that were looked up, with which a
  // step may go past a multiple of an interval without ending on it; none where room is made
  // between steps.
  int new_tokens = 1;
  StepKind step_kind = StepKind::kDecode;
  size_t tokens_to_come = 0;  // in the prompt's next step; 0 at its end and in decode
};

struct Move {
  uint32_t row = 0;  // index in the visible list
  Tier to = Tier::kT3;
  bool operator==(const Move&) const = default;
};

// A row that queries at later positions than `last_visible` must not see.
struct Expiry {
  uint32_t row = 0;  // index in the visible list
  Position last_visible = 0;
};

inline constexpr int kAnyStep = std::numeric_limits<int>::max();

// Turns scores and budgets into moves.
class Placement {
 public:
  virtual ~Placement() = default;
  Placement(const Placement&) = delete;
  Placement& operator=(const Placement&) = delete;

  [[nodiscard]] virtual std::string Name() const = 0;
  // False lets the engine skip scoring altogether (streaming).
  [[nodiscard]] virtual bool NeedsScores() const = 0;
  // Whether what must stay fits: when not, InvalidArgument (into the budget) or T0Full
  // (into the caps of the tiers) with the figures. Asked before a prompt is read, before the
  // step that follows a refusal by the caps, and with tiers before each Place(); for one group,
  // whose positions and scores may be empty.
  [[nodiscard]] virtual Status Check(const PlacementInput&) const { return OkStatus(); }
  // Whether Place() wants to be called after this step, for a group with `num_rows` rows.
  // Positions and scores may be empty.
  [[nodiscard]] virtual bool Due(const PlacementInput& input, size_t num_rows) const = 0;
  // Appends moves in ascending row order to `moves`; each row at most once.
  virtual void Place(const PlacementInput& input, std::vector<Move>* moves) = 0;
  // Returns why Place() puts this row of the input where it does: the rule, and the row's score and
  // rank where scores decide. The base class names those and Name(). REQUIRES: an input that
  // Place() may have.
  [[nodiscard]] virtual std::string Explain(const PlacementInput& input, size_t row) const;
  // From now on T0 is to keep this share of the rows of T0 and T1 that may leave it. A prefill's
  // Place() then divides them again, and nothing else. False, and nothing changed, for a placement
  // that has no such share.
  [[nodiscard]] virtual bool SetT0Share(double /*share*/) { return false; }
  // See Scorer; here of Due() and Place().
  [[nodiscard]] virtual bool GroupsAreIndependent() const { return false; }
  // For placements whose rows go at positions of their own, which may lie within a step:
  // appends the rows that only the first queries of a step are to see, before it begins.
  // next_position is that after the step. A step then has at most LongestStep() tokens, so that all
  // rows that expire within it are known before it; rows that Place() does not evict after it are
  // visible again.
  // REQUIRES: NeedsScores().
  virtual void FindExpiring(const PlacementInput&, std::vector<Expiry>*) const {}
  [[nodiscard]] virtual int LongestStep() const { return kAnyStep; }
  // See Scorer.
  [[nodiscard]] virtual Status SaveState(StateWriter* to) const;
  [[nodiscard]] virtual Status LoadState(StateReader* from);

 protected:
  Placement() = default;
};

// Chooses, inside a step, which of its rows a layer reads for the current query. Frees nothing.
class Selector {
 public:
  virtual ~Selector() = default;
  Selector(const Selector&) = delete;
  Selector& operator=(const Selector&) = delete;

  [[nodiscard]] virtual std::string Name() const = 0;
  [[nodiscard]] virtual SignalNeeds Needs() const = 0;
  virtual void Append(int group, std::span<const Position> positions) = 0;
  // See Scorer.
  virtual void Observe(std::span<const GroupSignals> groups, const StepSignals& step);
  virtual void ObserveGroup(int /*group*/, const GroupSignals&, const StepSignals&) {}
  virtual void Retain(int group, std::span<const uint32_t> kept) = 0;
  // Prepares Select() on several threads: called once with each part, 0 to num_parts -
  // 1, before Select() of this kv head, with the same q. Calls of different parts, and of kv heads
  // beside Select() of others, may come from several threads at once. Must not throw.
  virtual void Rank(int /*layer*/, int /*kv_head*/, std::span<const float> /*q*/, int /*part*/,
                    int /*num_parts*/) {}
  // Adds to `rows`, which is empty and has room for a range for every second row, what a token
  // reads in this kv head: ascending ranges with rows between them; if it adds none, all are read.
  // q: [query heads of the kv head, head_dim], after RoPE. Different kv heads' calls may come from
  // several threads at once. Must not throw.
  virtual void Select(int layer, int kv_head, std::span<const float> q,
                      std::vector<RowRange>* rows) = 0;
  // Adds to `rows`, empty and with room as above, the rows that the next token reads in this kv
  // head if it reuses this token's choice: rows that may be read ahead. Adds none where that is not
  // known. Called after Select() of the kv head, by the same thread. Must not throw.
  virtual void Foresee(int /*layer*/, int /*kv_head*/, std::vector<RowRange>* /*rows*/) const {}
  // The share of the attention that the choices so far left out, as it estimates it: the mean over
  // query heads.
  [[nodiscard]] virtual double EstimatedUnreadMass() const { return 0; }
  // How many rows of the group it knows of: held against the cache's when a sequence is resumed.
  [[nodiscard]] virtual size_t NumRows(int group) const = 0;
  // Prefix caching. Returns how many of the first `num_rows` rows of each group another selector
  // can learn from this one by TakeFirstRows(); nullopt: this selector shares no prefix.
  [[nodiscard]] virtual std::optional<size_t> NumRowsToShare(size_t /*num_rows*/) const {
    return std::nullopt;
  }
  // Learns the first `num_rows` rows of each group from `from`. The rows of the prefix that follow
  // them are then appended and shown to ObserveGroup(), with their keys alone. May throw
  // std::bad_alloc. REQUIRES: this selector knows no row; num_rows is NumRowsToShare() of `from`,
  // which has the same kind and parameters.
  virtual void TakeFirstRows(const Selector& /*from*/, size_t /*num_rows*/) {}
  // See Scorer.
  [[nodiscard]] virtual bool ComparesKeys() const { return false; }
  // See Scorer.
  [[nodiscard]] virtual Status SaveState(StateWriter* to) const;
  [[nodiscard]] virtual Status LoadState(StateReader* from);

 protected:
  Selector() = default;
};

// The time at which keys are re-rotated, so that surviving rows have consecutive RoPE positions.
enum class KeyTurns {
  kWhenFull,       // when the context is full, where the session allows it; from place 0 on
  kAfterEviction,  // whenever rows went (StreamingLLM, 3.2), up to the newest; when it is full, as
                   // above
};

// How much may stay. Rows are tokens per group; bytes are of all (layer, kv head) together. Percent
// is of PolicyInfo::percent_of; rows and bytes count protected rows too, so they can be too
// small for those, which is refused. kBeyond counts the rows beyond the protected ones (002, App.
// D). kCompression is the compression ratio CR of 003 (App. F.1): (input + maximum generation) / CR
// rows, rounded down.
struct Budget {
  enum class Unit { kNone, kRows, kPercent, kBytes, kBeyond, kCompression };
  Unit unit = Unit::kNone;
  double value = 0;

  bool operator==(const Budget&) const = default;
};

// Everything that a user can say about a policy. Unset options take the policy's own defaults.
struct PolicySpec {
  std::string name = "full";
  std::map<std::string, std::string> params = {};  // --policy NAME:key=value,...
  std::string scorer = {};                         // --scorer; empty: the policy's own
  Budget budget = {};
  std::optional<int> sinks = {};     // tokens
  std::optional<int> window = {};    // tokens
  std::optional<int> interval = {};  // generated tokens
  std::optional<Granularity> granularity = {};
  // Input and maximum generation, in tokens, of which kCompression takes a share; the context of
  // the session when unset.
  std::optional<int> most_tokens = {};
  // The hierarchy places the rows, and `name` only names the scorer. Excludes a budget.
  std::optional<TierSpec> tiers = {};
  uint64_t seed = 0;

  bool operator==(const PolicySpec&) const = default;
};

struct Policy {
  std::string name;  // what was asked for: "h2o", "h2o+scorer=random"
  // The specification with every default that MakePolicy() chose: two policies of equal identity,
  // for the same model, make the same decisions about the same tokens. The name includes the
  // scorer's; the seed is 0 where the scorer draws no random numbers. Nothing: not known, and
  // sessions share no prefixes.
  std::optional<PolicySpec> identity = {};
  Granularity granularity = Granularity::kToken;
  KeyTurns key_turns = KeyTurns::kWhenFull;
  bool looks_ahead = false;              // its scorer asks PolicyContext::foresight
  std::unique_ptr<Scorer> scorer;        // never null
  std::unique_ptr<Placement> placement;  // null: nothing ever moves
  std::unique_ptr<Selector> selector;    // null: every visible row is read
};

// "1024" (rows), "25%", "64MiB", "+512" (rows beyond the protected), "1/8" (compression ratio 8).
[[nodiscard]] Result<Budget> ParseBudget(std::string_view text);
// "1024 rows", "25%", "1024 bytes", "+512 rows", "1/8"
[[nodiscard]] std::string FormatBudget(const Budget& budget);

// Default protection of rows ("Not All Thoughts Need HBM", 3.2 and 3.3); policies
// of other papers bring their own.
inline constexpr int kDefaultSinks = 4;      // tokens
inline constexpr int kDefaultWindow = 128;   // tokens
inline constexpr int kDefaultInterval = 64;  // generated tokens

// "h2o:heavy=64,recent=64" into name and params. "windowed:" may stand before: it is part of the
// name.
[[nodiscard]] Status ParsePolicy(std::string_view text, PolicySpec* spec);

// Calls work(0) to work(num_parts - 1), some at once on the threads of the step; what they touch
// must be apart, and they must not throw. Only within Observe(), ObserveGroup(), Scores() and
// Retain() of a scorer whose groups are not apart, never within `work`; valid while the engine
// lives.
using RunParts = std::function<void(int num_parts, const std::function<void(int part)>& work)>;

// Rows of each (layer, kv head) that T0 and T1 hold under their caps, less a page of each, which is
// rarely full. The engine counts them, so that no policy knows bytes or pages.
struct RowsAvailable {
  static constexpr size_t kNoCap = std::numeric_limits<size_t>::max();
  size_t t0 = kNoCap;
  size_t t1 = kNoCap;
};

// The cache that a policy is made for.
struct PolicyContext {
  ModelShape shape;
  size_t row_bytes = 0;               // bytes of one row (key and value) of one (layer, kv head)
  int max_tokens = 0;                 // the context that the session was opened with
  RowsAvailable rows_available = {};  // under the caps of PolicySpec::tiers
  // The future, from a replay; null: unknown. Outlives the policy.
  const Foresight* foresight = nullptr;
  int eviction_window = 0;                   // Model::eviction_window()
  int eviction_shift = 1;                    // Model::eviction_shift()
  float attention_scale = 0;                 // Model::attention_scale(); 0: 1 / sqrt(head_dim)
  RunParts run_parts = {};                   // empty: on the calling thread
  const PolicyRegistry* registry = nullptr;  // whose names it may have; null: built-in ones
};

struct PolicyInfo {
  std::string_view name;
  std::string_view description;  // one line
  std::string_view source;       // paper and equation, or published code
  std::string_view params;       // "heavy=N,recent=N", beside its scorer's; empty: none
  Granularity granularity;
  std::string_view scorer;           // its own scorer
  std::string_view percent_of = {};  // what a budget in percent is a share of; empty: takes none
};
[[nodiscard]] std::span<const PolicyInfo> BuiltinPolicies();
// The policy of "h2o", or that "windowed:h2o:w=4+scorer=random" changes; null: no built-in policy
// is called so.
[[nodiscard]] const PolicyInfo* FindBuiltinPolicy(std::string_view name);

struct ScorerInfo {
  std::string_view name;
  std::string_view description;
  std::string_view params = {};  // of a policy with this scorer; empty: none
};
[[nodiscard]] std::span<const ScorerInfo> BuiltinScorers();

// A policy of a program's own: decides as `attention` does (the prompt, sinks and a window stay, a
// budget says how much else), by a scorer that the program brings. examples/policy.cc is one.
struct PolicyExtension {
  std::string name;
  std::string description;  // one line
  Granularity granularity = Granularity::kToken;
  // The granularity that a scorer is made for; --granularity may ask for another than the policy's
  // own.
  struct Context {
    ModelShape shape;
    Granularity granularity = Granularity::kToken;
    uint64_t seed = 0;
    [[nodiscard]] int NumGroups() const { return shape.NumGroups(granularity); }
  };
  std::function<std::unique_ptr<Scorer>(const Context&)> make_scorer;  // which never gives null
};

// Policies by name: the built-in ones, and those that a program adds. EngineOptions::policies gives
// one to an engine.
//
// Thread safety: a registry that is changed belongs to one thread; any number may read one that is
// not, and engines of several threads share it so.
class PolicyRegistry {
 public:
  PolicyRegistry();
  ~PolicyRegistry();
  PolicyRegistry(const PolicyRegistry&) = delete;
  PolicyRegistry& operator=(const PolicyRegistry&) = delete;

  // Its name is one of a policy and of a scorer from now on. Errors: InvalidArgument (no
  // make_scorer; a name that is empty, taken, or has other characters than a-z, 0-9 and _).
  [[nodiscard]] Status Add(PolicyExtension extension);
  // Takes that back. Sessions that have such a policy go on. Errors: NotFound (it was not added).
  [[nodiscard]] Status Remove(std::string_view name);

  struct Tables;
  [[nodiscard]] const Tables& tables() const { return *tables_; }

 private:
  std::unique_ptr<Tables> tables_;
};

// `spec` without the budget, sinks, window and interval that its policy does not take, so that one
// set of options goes with many policies. registry: null: built-in policies. Errors: unknown policy
// or scorer.
[[nodiscard]] Result<PolicySpec> DropUnusedOptions(PolicySpec spec,
                                                   const PolicyRegistry* registry = nullptr);

// Whether spec.seed decides anything. Added policies may use theirs. Errors: unknown policy or
// scorer.
[[nodiscard]] Result<bool> IsRandomized(const PolicySpec& spec,
                                        const PolicyRegistry* registry = nullptr);

// Errors: unknown policy, scorer or parameter (the message lists the valid ones), values out of
// range, a budget in rows or bytes that is smaller than sinks + window, a scorer that looks ahead
// without a foresight, one that reads marks of a model that sets none.
[[nodiscard]] Result<Policy> MakePolicy(const PolicySpec& spec, const PolicyContext& context);

}  // namespace ebb

#endif  // EBB_POLICY_H_
