// The tables of built-in policies and scorers. Every other word about them is read from here.
#ifndef EBB_POLICY_POLICY_TABLE_H_
#define EBB_POLICY_POLICY_TABLE_H_

#include <span>

#include "ebb/policy.h"
#include "src/policy/placements.h"
#include "src/policy/scorers.h"
#include "src/policy/selectors.h"

namespace ebb {

// Options that not every policy takes. --scorer and --granularity go with all of them.
enum PolicyOption : unsigned {
  kNoOption = 0,
  kBudgetOption = 1,
  kSinksOption = 2,
  kWindowOption = 4,
  kIntervalOption = 8,
  kBeyondOption = 16,      // a budget of rows beyond what is protected
  kBudgetSetsWindow = 32,  // --window goes only without a budget
};

struct PolicyRow {
  PolicyInfo info;
  unsigned options;  // of PolicyOption
  PlacementFactory make_placement;
  SelectorFactory make_selector = nullptr;
  KeyTurns key_turns = KeyTurns::kWhenFull;
};

// What a scorer cannot do without, beside signals that every model has.
enum class ScorerNeed {
  kNothing,
  kForesight,  // ScorerContext::foresight
  kMarks,      // SignalNeeds::eviction_logits
};

struct ScorerRow {
  ScorerInfo info;
  ScorerFactory make;  // null: the extension makes it
  ScorerNeed need = ScorerNeed::kNothing;
  bool draws_lots = false;  // its seed matters
  const PolicyExtension* extension = nullptr;
};

// The built-in ones, then those that were registered; rows move when one more is.
[[nodiscard]] std::span<const PolicyRow> PolicyTable();
[[nodiscard]] std::span<const ScorerRow> ScorerTable();

}  // namespace ebb

#endif  // EBB_POLICY_POLICY_TABLE_H_
