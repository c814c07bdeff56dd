// Lists which choices of a session exclude each other, as a table of pairs, each with a sentence
// that says why. MakePolicy() and Engine::OpenSession() refuse these pairs with that sentence, and
// docs/user/policies.md shows the table. All other choices can be combined.
#ifndef EBB_POLICY_PAIRS_H_
#define EBB_POLICY_PAIRS_H_

#include <span>
#include <string>
#include <string_view>

#include "ebb/status.h"

namespace ebb {

// Choice is one decision of a user: which rows leave, in which format and where the others lie, and
// which of them a step reads.
enum class Choice {
  // Which rows leave.
  kKeepsAll,
  kBudget,    // a budget, or numbers of rows among a policy's parameters
  kSegments,  // a budget by segments of thought
  kWindow,    // sinks and a window
  kMarks,     // the rows that the model marks
  kEvictShare,
  kEvictCaps,
  // How keys lie.
  kTurnedKeys,  // re-rotated
  // The format and the place of the others.
  kOldRows,  // T2 holds all old rows
  kT2Share,
  kT1,  // by T0's share or cap
  kT0Cap,
  kDraftShare,      // T0's share in a lossless session
  kLosslessSelect,  // selective reading in a lossless session, whose one cache has all rows
  // Which rows a step reads.
  kSelect,
  kQuest,
  // What a scorer needs.
  kReadsMass,
  kOtherScorer,  // than the policy's own
};

struct Pair {
  Choice a, b;
  std::string_view why;  // a sentence without a full stop
};

// Returns the pairs that are refused.
[[nodiscard]] std::span<const Pair> RefusedPairs();
// Returns the refused pair that `a` and `b` form; null: they can be combined.
[[nodiscard]] const Pair* FindPair(Choice a, Choice b);

// MadeChoice is a choice that a user made.
struct MadeChoice {
  Choice choice;
  std::string text;             // "a budget of 64 rows"
  std::string_view field = {};  // that the user set; empty: none that stands for the choice alone
};
// Checks that all of the choices can be combined. Errors: InvalidArgument, which names two of them
// and says why not.
[[nodiscard]] Status CheckPairs(std::span<const MadeChoice> choices);

// Returns the table of refused pairs as Markdown, for docs/user/policies.md.
[[nodiscard]] std::string PairsAsMarkdown();

}  // namespace ebb

#endif  // EBB_POLICY_PAIRS_H_
