#include "lab/pebble/writer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lab/pebble/arithmetic.h"
#include "lab/pebble/vocabulary.h"

namespace ebb::pebble {

Writer::Writer(PebbleFamily family, Style style) : style_(style) {
  problem_.family = family;
  problem_.tokens = {kPebbleStart};
  problem_.kinds = {PebbleTokenKind::kQuestion};
  Say("Question :");
  if (style == Style::kBrief) Say("Briefly .");
}

void Writer::Say(std::string_view words, PebbleTokenKind kind) {
  while (!words.empty()) {
    const size_t space = words.find(' ');
    problem_.tokens.push_back(TokenOf(words.substr(0, space)));
    problem_.kinds.push_back(kind);
    words = space == std::string_view::npos ? std::string_view() : words.substr(space + 1);
  }
}

void Writer::Say(std::string_view words) {
  Say(words, thinking_ ? PebbleTokenKind::kGrammar : PebbleTokenKind::kQuestion);
}

void Writer::Repeat(std::string_view words) {
  Say(words, thinking_ ? PebbleTokenKind::kCopied : PebbleTokenKind::kQuestion);
}

void Writer::Muse(std::string_view words) {
  if (style_ == Style::kFull) Say(words, PebbleTokenKind::kFiller);
}

void Writer::BeginThought() {
  problem_.tokens.push_back(kPebbleThink);
  problem_.kinds.push_back(PebbleTokenKind::kQuestion);
  problem_.num_question_tokens = static_cast<int>(problem_.tokens.size());
  thinking_ = true;
}

void Writer::State(std::string_view name, std::string_view value) {
  Say(name);
  Say(value);
  last_stated_[name] = static_cast<int>(problem_.tokens.size()) - 1;
}

void Writer::Recall(std::string_view name, std::string_view value, PebbleTokenKind name_kind) {
  Say("Recall");
  Say(name, name_kind);
  Say(value, PebbleTokenKind::kLookup);
  int& stated = last_stated_.at(name);
  const int here = static_cast<int>(problem_.tokens.size()) - 1;
  problem_.farthest_lookup = std::max(problem_.farthest_lookup, here - stated);
  stated = here;
  Say(".");
}

void Writer::Calculate(int a, std::string_view operation, int b, int result) {
  for (const std::string_view word : {Number(a), operation, Number(b)}) Say(word);
  Say("makes");
  Say(Number(result), PebbleTokenKind::kComputed);
  Say(".");
}

PebbleProblem Writer::Finish(std::string_view answer) && {
  problem_.tokens.push_back(kPebbleThinkEnd);
  problem_.kinds.push_back(PebbleTokenKind::kGrammar);
  problem_.num_thought_tokens =
      static_cast<int>(problem_.tokens.size()) - 1 - problem_.num_question_tokens;
  Say("The answer is");
  Say(answer, PebbleTokenKind::kAnswer);
  Say(".");
  problem_.tokens.push_back(kPebbleEnd);
  problem_.kinds.push_back(PebbleTokenKind::kGrammar);
  problem_.answer = std::string(answer);
  return std::move(problem_);
}

}  // namespace ebb::pebble
