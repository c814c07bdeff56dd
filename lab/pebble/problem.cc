#include <array>
#include <string>
#include <string_view>

#include "ebb/lab/pebble.h"
#include "lab/pebble/dice.h"
#include "lab/pebble/families.h"

namespace ebb {
namespace {

constexpr int kMinThoughtTokens = 300;
constexpr int kMaxThoughtTokens = 1500;
// kNumOpeningTokens is the number of tokens before the user's text: "<|start|>" and "Question:".
constexpr int kNumOpeningTokens = 3;

PebbleProblem Make(pebble::Style style, pebble::Dice* dice) {
  switch (dice->Below(kNumPebbleFamilies)) {
    case 0:
      return pebble::MakeAmounts(style, dice);
    case 1:
      return pebble::MakeWalk(style, dice);
    case 2:
      return pebble::MakeChanges(style, dice);
    default:
      return pebble::MakeSwaps(style, dice);
  }
}

std::string Join(std::span<const uint16_t> tokens) {
  std::string text;
  for (const uint16_t token : tokens) text += PebbleVocabulary()[token];
  return text;
}

}  // namespace

std::string_view PebbleFamilyName(PebbleFamily family) {
  constexpr std::array<std::string_view, kNumPebbleFamilies> kNames = {"amounts", "walk", "changes",
                                                                       "swaps"};
  return kNames[static_cast<size_t>(family)];
}

std::string_view PebbleTokenKindName(PebbleTokenKind kind) {
  constexpr std::array<std::string_view, kNumPebbleTokenKinds> kNames = {
      "question", "grammar", "copied", "lookup", "computed", "filler", "answer"};
  return kNames[static_cast<size_t>(kind)];
}

std::string PebbleProblem::Question() const {
  const auto all = std::span(tokens);
  const std::string text = Join(all.subspan(
      kNumOpeningTokens, static_cast<size_t>(num_question_tokens) - kNumOpeningTokens - 1));
  return text.substr(1);  // the template writes the first word's space
}

std::string PebbleProblem::Text() const { return Join(tokens); }

PebbleProblem MakePebbleProblem(uint64_t seed, uint64_t number) {
  pebble::Dice dice(seed, number);
  while (true) {
    PebbleProblem problem = Make(pebble::Style::kFull, &dice);
    if (problem.num_thought_tokens >= kMinThoughtTokens &&
        problem.num_thought_tokens <= kMaxThoughtTokens)
      return problem;
  }
}

PebbleProblem MakeBriefPebbleProblem(uint64_t seed, uint64_t number) {
  pebble::Dice dice(seed, number);
  return Make(pebble::Style::kBrief, &dice);
}

PebbleProblem MakePebbleDrill(PebbleDrill kind, uint64_t seed, uint64_t number) {
  pebble::Dice dice(seed, number);
  return pebble::MakeDrill(kind, &dice);
}

}  // namespace ebb
