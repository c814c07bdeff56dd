// Declares the tables of built-in policies and scorers. Options, help texts and documents read all
// facts about a policy from them.
#ifndef EBB_POLICY_POLICY_TABLE_H_
#define EBB_POLICY_POLICY_TABLE_H_

#include <array>
#include <list>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "ebb/policy.h"
#include "src/policy/placements.h"
#include "src/policy/scorers.h"
#include "src/policy/selectors.h"

namespace ebb {

// PolicyOption names the options that only some policies accept. All policies accept --scorer and
// --granularity.
enum PolicyOption : unsigned {
  kNoOption = 0,
  kBudgetOption = 1,
  kSinksOption = 2,
  kWindowOption = 4,
  kIntervalOption = 8,
  kBeyondOption = 16,      // a budget of rows beyond the protected ones
  kBudgetSetsWindow = 32,  // --window goes only without a budget
};

// kPolicyOptionNames names the options of policies, in the order in which messages list them;
// kNoOption: all policies accept the option.
inline constexpr std::array<std::pair<std::string_view, PolicyOption>, 6> kPolicyOptionNames = {
    {{"scorer", kNoOption},
     {"granularity", kNoOption},
     {"budget", kBudgetOption},
     {"sinks", kSinksOption},
     {"window", kWindowOption},
     {"interval", kIntervalOption}}};

struct PolicyRow {
  PolicyInfo info;
  unsigned options;  // of PolicyOption
  PlacementFactory make_placement;
  SelectorFactory make_selector = nullptr;
  KeyTurns key_turns = KeyTurns::kWhenFull;
};

// ScorerNeed names the requirement of a scorer beyond the signals that every model has.
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
  // Declares that a score below 0 means that the row's segment has no room for it. Placements by
  // segments then evict the row even if the budget has room.
  bool negative_means_no_room = false;
  const PolicyExtension* extension = nullptr;
};

// Tables holds the built-in policies and scorers, followed by the ones that the program added.
struct PolicyRegistry::Tables {
  std::vector<PolicyRow> policies;
  std::vector<ScorerRow> scorers;
  std::list<PolicyExtension> extensions;  // at fixed addresses, since the rows point to them
};
// Returns the tables of `registry`; null means the built-in ones.
[[nodiscard]] const PolicyRegistry::Tables& TablesOf(const PolicyRegistry* registry);

}  // namespace ebb

#endif  // EBB_POLICY_POLICY_TABLE_H_
