// Reports: the cost of a cache, the work and time of a step, and the history of each token, for
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

// The exact cost of the cache: every byte that is mapped for rows and every byte of the tables
// that describe them.

// One tier of one sequence. Pages of a T1 in a file are bytes of that file.
struct TierAccounting {
  int64_t rows = 0;       // (layer, kv head, token) triples that are visible
  size_t row_bytes = 0;   // of those rows: rows * bytes of a key and a value
  size_t page_bytes = 0;  // of the pages that hold them, holes included
  // Bytes of page_bytes that other sequences hold too: ArenaAccounting counts them once.
  size_t shared_page_bytes = 0;
  // page_bytes, of which a page that k sequences hold counts as a kth.
  size_t fair_page_bytes = 0;
};

// Rows that changed their tier, evictions left out. Down is away from T0.
struct MoveAccounting {
  int64_t rows_down = 0;
  int64_t rows_up = 0;
  size_t bytes_down = 0;        // of the rows as they were
  size_t bytes_up = 0;          // of the rows as they became
  int64_t rows_compressed = 0;  // of rows_down, those that went to T2
  double seconds = 0;           // in which the sequence could not step
  double seconds_down = 0;      // of them, copying rows down and
  double seconds_up = 0;        // up; the rest plans and makes room
};

// Decode steps that read selected rows (TierSpec::t1_read); zeros where all rows are read.
struct SelectionAccounting {
  int64_t rows_read = 0;    // (layer, kv head, token) triples, over all steps
  int64_t rows_unread = 0;  // visible, and left out
  double unread_mass = 0;   // the share of the attention that went unread, as estimated: the mean
  // The same, computed from the keys for one query head of one layer at every 17th position; a
  // device takes no samples.
  double sampled_unread_mass = 0;
  int64_t num_samples = 0;
  int64_t pages_cached = 0;  // of T1 in a file or beyond a device, that a step found cached
  int64_t pages_read = 0;    // and that it read
  size_t bytes_read = 0;     // of these pages
  double wait_seconds = 0;   // for those of a file: copies to a device are not waited for

  // Returns the share of the visible rows that was read; 1 where no step was selective.
  [[nodiscard]] double ReadShare() const {
    const auto visible = static_cast<double>(rows_read + rows_unread);
    return visible > 0 ? static_cast<double>(rows_read) / visible : 1;
  }
};

// One sequence.
struct CacheAccounting {
  std::array<TierAccounting, kNumTiers> tiers;
  // The newest verified rows of a lossless session with a T1, on their way there. Their pages are
  // part of staging_bytes, not of T0, which is the draft's.
  TierAccounting newest;
  MoveAccounting moves;
  SelectionAccounting selection;
  int64_t rows_evicted =
      0;  // ever, those that left a window among them; a roll-back evicts nothing
  // Slots, positions, free lists, page tables, text to look up in, first keys of rows that turn.
  size_t table_bytes = 0;
  size_t staging_bytes = 0;  // memory into which T1 is staged or edited
  size_t ledger_bytes = 0;   // of the ledger, where one was asked for
  // The recurrent state of a model that has one, and copies of it at the ends of prompts.
  size_t state_bytes = 0;
  int64_t num_tables = 0;  // token tables; 1 while all groups agree
};

// An arena, shared by sequences.
struct ArenaAccounting {
  size_t reserved_bytes = 0;  // mapped from the system now
  size_t used_bytes = 0;      // in pages that some sequence holds
  size_t peak_bytes = 0;      // largest reserved_bytes so far
  size_t pledged_bytes = 0;   // of T0: kept for the floors of sessions that do not use it yet
  size_t cap_bytes = 0;
};

// The work and time of a step, for front ends, benchmarks and tests.

// The time of a step's graph by node, as its first thread sees it: each node's time, waiting for
// the other threads at its beginning included.
struct StepCosts {
  double embedding_seconds = 0;  // looking up the tokens' embeddings
  double matmul_seconds = 0;     // products with weights
  double attention_seconds = 0;  // storing and reading rows; waiting for T1's file left out
  double other_seconds = 0;      // norms, RoPE, activations, sums; starting and ending the graph
};

struct StepReport {
  StepKind kind = StepKind::kDecode;
  int num_tokens = 0;
  int64_t rows_evicted = 0;  // by the placement, or by windows, after this step
  int64_t rows_unread = 0;   // visible, but left out by a selector
  size_t t1_bytes_read = 0;  // wherever T1 lies
  // Making rows and places, reading T1 and the graph; a verifying step's logits come later.
  double compute_seconds = 0;
  double policy_seconds = 0;   // observe, place, move, remove, compact, sort
  double io_wait_seconds = 0;  // of compute_seconds: nothing to do until T1's file was read
  double select_seconds = 0;   // of compute_seconds: selectors chose what to read
  MoveAccounting moves;        // by the placement, after this step
  bool mass_computed = false;
  std::optional<StepCosts> costs;  // when they were asked for
};

// Why a token's rows of one group lie where they do; see SessionOptions::explained.
struct Explanation {
  Position num_tokens = 0;  // of the sequence at the decision
  int group = 0;
  Tier tier = Tier::kT0;  // from then on
  std::string why;        // the rule, the row's score and its rank
};

// The ledger of a session: which token went to which tier, and when. Steps are counted from 0, a
// prefill chunk or a decode step each; a token enters T0 in all groups in the step that reads it,
// moves when a placement says so or when all rows are parked, and is forgotten by a roll-back.
//
// It is append-only and compact: a byte for a decode step, one to two bytes for a move, besides one
// byte per (group, token) for the present state. CacheAccounting::ledger_bytes counts all of it.
// Sessions that were not asked for a ledger have none and pay nothing.
//
// Rows are (layer, kv head, token) triples; a token of a group stands for as many as the group has
// (layer, kv head) pairs.
//
// Thread safety: that of its session.

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
  // [groups]: the (layer, kv head) pairs of each.
  explicit Ledger(std::vector<int> rows_per_token);

  // The present state.
  [[nodiscard]] int num_groups() const { return static_cast<int>(tiers_.size()); }
  [[nodiscard]] Position next_position() const { return next_; }
  [[nodiscard]] int64_t num_steps() const { return num_steps_; }
  // By position, [next_position]; T3: evicted. Valid until the next change.
  [[nodiscard]] std::span<const Tier> tiers(int group) const { return tiers_[group]; }
  // Over all groups.
  [[nodiscard]] int64_t rows(Tier tier) const { return rows_[static_cast<size_t>(tier)]; }
  // The tier in which most groups have this token; of two with equally many the faster.
  [[nodiscard]] Tier CommonTier(Position position) const;
  // Grows with every change: a view of the ledger is drawn again when it differs.
  [[nodiscard]] uint64_t num_changes() const { return num_changes_; }
  [[nodiscard]] size_t memory_bytes() const;

  // History. Each function reads the whole ledger.
  // Every event in order; an appended token is one event.
  void ForEach(const std::function<void(const LedgerEvent&)>& visit) const;
  // The events of a token since it was appended; empty for one that is not there.
  [[nodiscard]] std::vector<LedgerEvent> History(int group, Position position) const;
  // Rows per tier after every step; T3: evicted so far, less those that were rolled back.
  using RowsPerTier = std::array<int64_t, kNumTiers>;
  [[nodiscard]] std::vector<RowsPerTier> RowsByStep() const;  // [num_steps]

  // Recording, by the engine.
  struct Change {
    Position position = 0;
    Tier to = Tier::kT0;
  };
  // Makes room, so that Append() of so many tokens allocates nothing by token.
  void ReserveTokens(size_t num_tokens);
  // A step begins with these new tokens.
  void Append(int num_tokens);
  // Ascending positions. Tokens that are there already stay.
  void Move(int group, std::span<const Change> changes);
  // After moves that failed half-way: the rows that are left, ascending, and where they lie.
  void Reconcile(int group, std::span<const Position> positions, std::span<const Tier> tiers);
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
