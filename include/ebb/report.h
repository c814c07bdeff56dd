// Reports the cost of a cache, the work and time of a step, and the history of each token, for
// front ends, benchmarks and tests.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_REPORT_H_
#define EBB_REPORT_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "ebb/types.h"

namespace [[gnu::visibility("default")]] ebb {

// The structs of accounting report the exact cost of the cache: every byte that is mapped for rows,
// and every byte of the tables that describe them.

// TierAccounting reports one tier of one sequence. Pages of a T1 in a file are bytes of that file.
struct TierAccounting {
  int64_t rows = 0;       // (layer, kv head, token) triples that are visible
  size_t row_bytes = 0;   // rows * bytes of a key and a value
  size_t page_bytes = 0;  // bytes of the pages that hold these rows, holes included
  // Counts the bytes of page_bytes that other sequences hold too. ArenaAccounting counts them once.
  size_t shared_page_bytes = 0;
  // Counts page_bytes with shared pages divided: a page that k sequences hold adds 1/k of its
  // bytes.
  size_t fair_page_bytes = 0;
};

// MoveAccounting counts the rows that changed their tier, evictions excluded. "Down" is away from
// T0.
struct MoveAccounting {
  int64_t rows_down = 0;
  int64_t rows_up = 0;
  size_t bytes_down = 0;        // the rows' bytes before the move
  size_t bytes_up = 0;          // the rows' bytes after the move
  int64_t rows_compressed = 0;  // the part of rows_down that went to T2
  double seconds = 0;           // seconds during which the sequence could not step
  double seconds_down = 0;      // the part that copied rows down
  double seconds_up = 0;        // the part that copied rows up; the rest plans and makes room
};

// SelectionAccounting reports decode steps that read selected rows (TierShares::t1_read). All
// members are zero if steps read all rows.
struct SelectionAccounting {
  int64_t rows_read = 0;    // (layer, kv head, token) triples, over all steps
  int64_t rows_unread = 0;  // visible, and left out
  double unread_mass = 0;   // the share of the attention that went unread, as estimated: the mean
  // Measures the unread share of the attention from the keys, for one query head of one layer at
  // every 17th position. Steps on a device take no samples.
  double sampled_unread_mass = 0;
  int64_t num_samples = 0;
  int64_t pages_cached = 0;  // pages of T1 in a file or beyond a device that were cached
  int64_t pages_read = 0;    // pages that were not cached and had to be read
  size_t bytes_read = 0;     // bytes of the pages that were read
  double wait_seconds = 0;   // for those of a file: copies to a device are not waited for

  // Returns the share of the visible rows that was read; 1 if no step was selective.
  [[nodiscard]] double ReadShare() const {
    const auto visible = static_cast<double>(rows_read + rows_unread);
    return visible > 0 ? static_cast<double>(rows_read) / visible : 1;
  }
};

// CacheAccounting reports the cache of one sequence.
struct CacheAccounting {
  std::array<TierAccounting, kNumTiers> tiers;
  // Counts the newest verified rows of a lossless session with a T1, which collect in memory before
  // they are written to T1. Their pages are part of staging_bytes, not of T0, which belongs to the
  // draft.
  TierAccounting newest;
  MoveAccounting moves;
  SelectionAccounting selection;
  int64_t rows_evicted =
      0;  // ever, those that left a window among them; a roll-back evicts nothing
  // Counts slots, positions, free lists, page tables, text for prompt lookup, and the unrotated
  // keys of rows that are re-rotated.
  size_t table_bytes = 0;
  size_t staging_bytes = 0;  // memory into which T1 is staged or edited
  size_t ledger_bytes = 0;   // bytes of the ledger; 0 without one
  // Counts the recurrent state of a model that has one, and its checkpoints at the ends of prompts.
  size_t state_bytes = 0;
  int64_t num_tables = 0;  // token tables; 1 while all groups agree
};

// ArenaAccounting reports an arena, which sequences share.
struct ArenaAccounting {
  size_t reserved_bytes = 0;  // mapped from the system now
  size_t used_bytes = 0;      // bytes of pages that sequences hold
  size_t peak_bytes = 0;      // largest reserved_bytes so far
  size_t pledged_bytes = 0;   // bytes of T0 that floors of sessions reserve and do not use yet
  size_t cap_bytes = 0;
};

// The work and time of a step, for front ends, benchmarks and tests.

// StepCosts divides the time of a step's graph by kind of node, as the graph's first thread
// measures it. A node's time includes the wait for the other threads at its beginning.
struct StepCosts {
  double embedding_seconds = 0;  // looking up the tokens' embeddings
  double matmul_seconds = 0;     // products with weights
  double attention_seconds = 0;  // storing and reading rows; waiting for T1's file left out
  double other_seconds = 0;      // norms, RoPE, activations, sums; starting and ending the graph
};

// StepReport reports the work and the time of a session's step.
struct StepReport {
  StepKind kind = StepKind::kDecode;
  int num_tokens = 0;
  int64_t rows_evicted = 0;  // by the placement, or by windows, after this step
  int64_t rows_unread = 0;   // visible, but left out by a selector
  size_t t1_bytes_read = 0;  // from memory or a file
  // Measures the seconds for making rows and slots, reading T1 and computing the graph. Leaves out
  // the logits of a verifying step, which are computed later.
  double compute_seconds = 0;
  double policy_seconds = 0;   // observe, place, move, remove, compact, sort
  double io_wait_seconds = 0;  // the part of compute_seconds spent waiting for T1's file
  double select_seconds = 0;   // the part of compute_seconds in which selectors chose rows
  MoveAccounting moves;        // by the placement, after this step
  bool mass_computed = false;
  std::optional<StepCosts> costs;  // when they were asked for
};

// Explanation describes why a token's rows of one group are in their tiers; see
// SessionOptions::explained.
struct Explanation {
  Position num_tokens = 0;  // of the sequence at the decision
  int group = 0;
  Tier tier = Tier::kT0;  // from then on
  std::string why;        // the rule, the row's score and its rank
};

// Ledger records the history of a session's tokens: which token moved to which tier, and when.
// Steps are counted from 0; a prefill chunk and a decode step are one step each. A token enters T0
// in all groups in the step that reads it, moves when a placement decides so or when the session is
// parked, and is forgotten by a roll-back.
//
// The ledger is append-only and compact: a byte for a decode step, one to two bytes for a move, and
// one byte per (group, token) for the present state. CacheAccounting::ledger_bytes counts all of
// it. Sessions without SessionOptions::ledger have none, at no cost.
//
// Counts of rows are (layer, kv head, token) triples; a token of a group counts once for each of
// the group's (layer, kv head) pairs.
//
// Thread safety: that of its session.

// LedgerEvent is one entry of a ledger: tokens were appended, moved or forgotten.
struct LedgerEvent {
  enum class Kind { kAppended, kMoved, kForgotten };
  Kind kind = Kind::kAppended;
  int64_t step = 0;
  int group = -1;         // of a move; -1: all
  Position position = 0;  // the token; kForgotten: the first of those that went
  Tier to = Tier::kT0;    // of a move
  bool operator==(const LedgerEvent&) const = default;
};

class Ledger {
 public:
  // Creates an empty ledger. `rows_per_token` [groups] counts the (layer, kv head) pairs of each
  // group.
  explicit Ledger(std::vector<int> rows_per_token);

  // num_groups() and the functions below return the present state.
  [[nodiscard]] int num_groups() const { return static_cast<int>(tiers_.size()); }
  [[nodiscard]] Position next_position() const { return next_; }
  [[nodiscard]] int64_t num_steps() const { return num_steps_; }
  // Returns the tier of each token by position, [next_position]; T3: evicted. Valid until the next
  // change.
  [[nodiscard]] std::span<const Tier> tiers(int group) const { return tiers_[group]; }
  // Returns the number of rows in a tier over all groups.
  [[nodiscard]] int64_t rows(Tier tier) const { return rows_[static_cast<size_t>(tier)]; }
  // Returns the tier in which most groups have this token; of two tiers with equally many, the
  // faster.
  [[nodiscard]] Tier CommonTier(Position position) const;
  // Returns a number that grows with every change, so that a view knows when to redraw the ledger.
  [[nodiscard]] uint64_t num_changes() const { return num_changes_; }
  [[nodiscard]] size_t memory_bytes() const;

  // Calls visit() for every event in order; an appended token is one event. This function and the
  // two below return the history, and each reads the whole ledger.
  void ForEach(const std::function<void(const LedgerEvent&)>& visit) const;
  // Returns the events of a token since it was appended; empty if the ledger has no such token.
  [[nodiscard]] std::vector<LedgerEvent> History(int group, Position position) const;
  // RowsPerTier counts rows per tier. T3 counts the rows evicted so far, less those that were
  // rolled back. RowsByStep() returns the counts after every step.
  using RowsPerTier = std::array<int64_t, kNumTiers>;
  [[nodiscard]] std::vector<RowsPerTier> RowsByStep() const;  // [num_steps]

  // Change is a move of one token. The engine calls the functions below to record what happens.
  struct Change {
    Position position = 0;
    Tier to = Tier::kT0;
  };
  // Reserves memory, so that Append() of so many tokens allocates nothing per token.
  void ReserveTokens(size_t num_tokens);
  // Begins a step with `num_tokens` new tokens.
  void Append(int num_tokens);
  // Records moves of a group's tokens, in ascending positions. Changes that name a token's present
  // tier are ignored.
  void Move(int group, std::span<const Change> changes);
  // Changes the recorded present state of a group after moves that failed half-way, to the rows
  // that are left: their ascending positions and their tiers.
  void Reconcile(int group, std::span<const Position> positions, std::span<const Tier> tiers);
  // Forgets the tokens at `end` and later, which are rolled back.
  void TruncateTo(Position end);

 private:
  class Replay;

  const std::vector<int> rows_per_token_;  // [groups]
  const int64_t rows_of_all_;              // their sum
  std::vector<uint8_t> log_;
  std::vector<std::vector<Tier>> tiers_;  // [groups][next_]
  RowsPerTier rows_ = {};
  Position next_ = 0;
  int64_t num_steps_ = 0;
  uint64_t num_changes_ = 0;
  std::vector<Change> changes_;  // work space
};

}  // namespace ebb

#endif  // EBB_REPORT_H_
