#include "src/policy/pairs.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <vector>

namespace ebb {
namespace {

constexpr std::string_view kTwoAmounts = "both say how many rows are evicted";
constexpr std::string_view kCannotTurn = "keys in T1 and T2 cannot be re-rotated";
constexpr std::string_view kNamesFullRows =
    "steps choose rows in full precision, and these rows are compressed";
constexpr std::string_view kNeedsAllMass =
    "its scores need the attention to every row, and rows that a step does not read receive none";

constexpr std::string_view kVerifiesAll = "every token is verified over all rows";

using C = Choice;
constexpr std::array kRefused = {
    Pair{C::kEvictShare, C::kBudget, kTwoAmounts},
    Pair{C::kEvictShare, C::kSegments, kTwoAmounts},
    Pair{C::kEvictShare, C::kWindow, kTwoAmounts},
    Pair{C::kEvictShare, C::kMarks, kTwoAmounts},
    Pair{C::kEvictShare, C::kTurnedKeys, kCannotTurn},
    Pair{C::kEvictCaps, C::kTurnedKeys, kCannotTurn},
    Pair{C::kTurnedKeys, C::kOldRows, kCannotTurn},
    Pair{C::kTurnedKeys, C::kT2Share, kCannotTurn},
    Pair{C::kTurnedKeys, C::kT1, kCannotTurn},
    Pair{C::kTurnedKeys, C::kSelect, "the choice of rows compares keys of different steps"},
    Pair{C::kTurnedKeys, C::kQuest, "the choice of rows compares keys of different steps"},
    Pair{C::kOldRows, C::kEvictCaps, "T0 holds few rows, whose number no cap changes"},
    Pair{C::kOldRows, C::kT0Cap, "T0 holds few rows, whose number no cap changes"},
    Pair{C::kQuest, C::kT0Cap,
         "T0 holds few rows, and a cache of pages takes a share of the others"},
    Pair{C::kQuest, C::kEvictCaps,
         "T0 holds few rows, and a cache of pages takes a share of the others"},
    Pair{C::kOldRows, C::kSelect, kNamesFullRows},
    Pair{C::kOldRows, C::kQuest, kNamesFullRows},
    Pair{C::kT2Share, C::kSelect, kNamesFullRows},
    Pair{C::kT2Share, C::kQuest, kNamesFullRows},
    Pair{C::kSelect, C::kEvictCaps, "T0 holds few rows, and a cache of pages takes the rest of it"},
    Pair{C::kSelect, C::kQuest, "both choose the rows that a step reads"},
    Pair{C::kSegments, C::kSelect, kNeedsAllMass},
    Pair{C::kSegments, C::kQuest, kNeedsAllMass},
    Pair{C::kReadsMass, C::kSelect, kNeedsAllMass},
    Pair{C::kReadsMass, C::kQuest, kNeedsAllMass},
    Pair{C::kMarks, C::kOtherScorer,
         "rows go by the sign of the model's own marks, which other scores do not have"},
    Pair{C::kDraftShare, C::kBudget, "both say how many rows a draft keeps"},
    Pair{C::kLosslessSelect, C::kBudget, kVerifiesAll},
    Pair{C::kLosslessSelect, C::kEvictShare, kVerifiesAll},
};

struct Title {
  Choice choice;
  std::string_view text;
};
constexpr std::array kRows = {
    Title{C::kKeepsAll, "every row stays (`full`)"},
    Title{C::kBudget, "a budget, or rows among the parameters"},
    Title{C::kSegments, "a budget by segments (`thinkv`)"},
    Title{C::kWindow, "sinks and a window (`streaming`)"},
    Title{C::kMarks, "the model's marks (`dms`)"},
    Title{C::kTurnedKeys, "`streaming_rerotated`, `--past-context rerotate`"},
    Title{C::kReadsMass, "a scorer that reads attention"},
    Title{C::kOldRows, "`--t2 old`, `--kv-type q8`, `q4`, `q3`, `q2`"},
    Title{C::kT2Share, "`--t2 PERCENT`"},
};
constexpr std::array kColumns = {
    Title{C::kOldRows, "`--t2 old`, `--kv-type q4`"},
    Title{C::kT2Share, "`--t2 PERCENT`"},
    Title{C::kT1, "a T1 (`--t1`)"},
    Title{C::kSelect, "`--read select`"},
    Title{C::kQuest, "`--read quest`"},
    Title{C::kEvictShare, "`--evict PERCENT`"},
    Title{C::kEvictCaps, "`--evict caps`"},
};

}  // namespace

std::span<const Pair> RefusedPairs() { return kRefused; }

const Pair* FindPair(Choice a, Choice b) {
  const auto found = std::ranges::find_if(kRefused, [&](const Pair& pair) {
    return (pair.a == a && pair.b == b) || (pair.a == b && pair.b == a);
  });
  return found == kRefused.end() ? nullptr : &*found;
}

Status CheckPairs(std::span<const MadeChoice> choices) {
  for (const MadeChoice& a : choices) {
    for (const MadeChoice& b : choices.first(static_cast<size_t>(&a - choices.data()))) {
      const Pair* const pair = FindPair(a.choice, b.choice);
      if (pair == nullptr) continue;
      // An error names one field, and the text names the other choice.
      const MadeChoice& with_field = a.field.empty() ? b : a;
      const MadeChoice& other = a.field.empty() ? a : b;
      return InvalidArgument(
          std::string(with_field.field),
          fmt::format("{} cannot be combined with {}: {}", with_field.text, other.text, pair->why));
    }
  }
  return OkStatus();
}

std::string PairsAsMarkdown() {
  std::string text = "| |";
  for (const Title& column : kColumns) text += fmt::format(" {} |", column.text);
  text += "\n|---|";
  for (size_t i = 0; i < kColumns.size(); ++i) text += "---|";
  std::vector<std::string_view> reasons;
  for (const Title& row : kRows) {
    text += fmt::format("\n| {} |", row.text);
    for (const Title& column : kColumns) {
      const Pair* const pair = FindPair(row.choice, column.choice);
      if (row.choice == column.choice) {
        text += " - |";
      } else if (pair == nullptr) {
        text += " yes |";
      } else {
        auto reason = std::ranges::find(reasons, pair->why);
        if (reason == reasons.end()) reason = reasons.insert(reasons.end(), pair->why);
        text += fmt::format(" no ({}) |", reason - reasons.begin() + 1);
      }
    }
  }
  text += "\n";
  for (size_t i = 0; i < reasons.size(); ++i) text += fmt::format("\n{}. {}.", i + 1, reasons[i]);
  return text + "\n";
}

}  // namespace ebb
