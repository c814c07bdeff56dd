// The tables of built-in policies and scorers. Every other word about them is read from here.
#ifndef EBB_POLICY_POLICY_TABLE_H_
#define EBB_POLICY_POLICY_TABLE_H_

#include <list>
#include <span>
#include <vector>

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
  kBeyondOption = 16,      // a budget of rows beyond the protected ones
  kBudgetSetsWindow = 32,  // --window goes only without a budget
};

struct PolicyRow {
  PolicyInfo info;
  unsigned options;  // of PolicyOption
  PlacementFactory make_placement;
  SelectorFactory make_selector = nullptr;
  KeyTurns key_turns = KeyTurns::kWhenFull;
};

// A scorer's requirement of the model, in addition to the signals that every model has.
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
  // A score below 0 says that there is no room for the row, whatever a budget leaves.
  bool tells_room = false;
  const PolicyExtension* extension = nullptr;
};

// The built-in rows, then those that were added.
struct PolicyRegistry::Tables {
  std::vector<PolicyRow> policies;
  std::vector<ScorerRow> scorers;
  std::list<PolicyExtension> extensions;  // stay where they are: the rows point to them
};
// registry: null: built-in policies alone.
[[nodiscard]] const PolicyRegistry::Tables& TablesOf(const PolicyRegistry* registry);

}  // namespace ebb

#endif  // EBB_POLICY_POLICY_TABLE_H_
