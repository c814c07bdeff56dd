// The ledger of a session: which token went to which tier, and when. Steps are counted from 0, a
// prefill chunk or a decode step each; a token enters T0 in all groups in the step that reads it,
// moves when a placement says so, and is forgotten by a roll-back.
//
// It is append-only and compact: a byte for a decode step, one to two bytes for a move, besides one
// byte per (group, token) for what is now. CacheAccounting::ledger_bytes counts all of it. Sessions
// that were not asked for a ledger have none and pay nothing.
//
// Rows are (layer, kv head, token) triples; a token of a group stands for as many as the group has
// (layer, kv head) pairs.
//
// Thread safety: that of its session.
#ifndef EBB_LEDGER_H_
#define EBB_LEDGER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "ebb/types.h"

namespace ebb {

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

  // What is now.
  [[nodiscard]] int num_groups() const { return static_cast<int>(tiers_.size()); }
  [[nodiscard]] Position next_position() const { return next_; }
  [[nodiscard]] int64_t num_steps() const { return num_steps_; }
  // By position, [next_position]; T3: evicted. Valid until the next change.
  [[nodiscard]] std::span<const Tier> tiers(int group) const { return tiers_[group]; }
  // Of all groups.
  [[nodiscard]] int64_t rows(Tier tier) const { return rows_[static_cast<size_t>(tier)]; }
  // The tier in which most groups have this token; of two with equally many the faster.
  [[nodiscard]] Tier CommonTier(Position position) const;
  // Grows with every change: who draws the ledger draws anew when it differs.
  [[nodiscard]] uint64_t num_changes() const { return num_changes_; }
  [[nodiscard]] size_t memory_bytes() const;

  // What was. Each reads the whole ledger.
  // Every event in order; an appended token is one event.
  void ForEach(const std::function<void(const LedgerEvent&)>& visit) const;
  // Of a token that is there, since it was appended. Empty for any other.
  [[nodiscard]] std::vector<LedgerEvent> History(int group, Position position) const;
  // Rows per tier after every step; T3: evicted so far, less those that were rolled back.
  using RowsPerTier = std::array<int64_t, kNumTiers>;
  [[nodiscard]] std::vector<RowsPerTier> RowsByStep() const;  // [num_steps]

  // Recording; what the engine calls.
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

#endif  // EBB_LEDGER_H_
