#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <utility>

#include "ebb/lab/answers.h"
#include "lab/answers/equality.h"
#include "lab/answers/formula.h"
#include "lab/answers/hashes.h"
#include "lab/answers/number_value.h"
#include "lab/answers/numbers.h"
#include "lab/answers/options.h"
#include "lab/answers/phrases.h"
#include "lab/answers/text.h"

namespace ebb {
namespace {

constexpr std::string_view kThinkEnd = "</think>";

// Returns the text after the thought; the whole text if nothing follows a thought.
std::string_view SpokenPart(std::string_view text) {
  const size_t end = text.rfind(kThinkEnd);
  if (end == std::string_view::npos) return text;
  const std::string_view spoken = text.substr(end + kThinkEnd.size());
  return Trim(spoken).empty() ? text : spoken;
}

bool IsBlank(std::string_view text) {
  for (bool more = true; more;) {
    more = false;
    text = Trim(text);
    for (const std::string_view tag : {std::string_view("<think>"), kThinkEnd}) {
      if (!text.starts_with(tag)) continue;
      text.remove_prefix(tag.size());
      more = true;
    }
  }
  return text.empty();
}

Extraction Found(ExtractionRule rule, std::string_view answer) {
  answer = Trim(answer);
  if (answer.empty()) return {};
  return {rule, std::string(answer)};
}

// Returns where a number word ends together with its scale, as in "seven hundred"; "seven" ends at
// `end`.
size_t ScaleEnd(std::string_view text, size_t end) {
  constexpr size_t kMaxLetters = 9;
  size_t scale = end;
  while (scale < end + 2 && scale < text.size() && (text[scale] == ' ' || text[scale] == '-')) {
    ++scale;
  }
  const size_t begin = scale;
  while (scale < begin + kMaxLetters && scale < text.size() && IsLetter(text[scale])) ++scale;
  return ScaleOfWord(LowerCase(text.substr(begin, scale - begin))).empty() ? end : scale;
}

// Returns the first word that is not an article: "seven" in "the seven apples".
std::string_view FirstProseWord(std::string_view text) {
  for (;;) {
    while (!text.empty() && !IsAlphanumeric(text.front()) &&
           static_cast<unsigned char>(text.front()) < 0x80) {
      text.remove_prefix(1);
    }
    size_t end = 0;
    while (end < text.size() &&
           (IsAlphanumeric(text[end]) || text[end] == '-' || text[end] == '\'' ||
            static_cast<unsigned char>(text[end]) >= 0x80)) {
      ++end;
    }
    const std::string_view word = text.substr(0, end);
    const std::string lower = LowerCase(word.substr(0, 4));
    if (word.empty() || (lower != "the" && lower != "a" && lower != "an")) {
      return text.substr(0, ScaleEnd(text, end));
    }
    text.remove_prefix(end);
  }
}

// Returns whether a number ends its clause: the text after it neither calculates further nor begins
// another clause, as in "18 dollars for 3 days".
bool EndsClause(std::string_view behind_number) {
  return behind_number.find_first_of("=+*/,<-") == std::string_view::npos &&
         behind_number.find(" so ") == std::string_view::npos &&
         behind_number.find(" and ") == std::string_view::npos;
}

// Returns the number that directly follows the last "is" or "equals" and ends its clause.
std::string_view NumberOfVerb(std::string_view sentence) {
  for (const std::string_view verb : {" is ", " equals "}) {
    const size_t at = sentence.rfind(verb);
    if (at == std::string_view::npos) continue;
    const std::string_view behind = sentence.substr(at + verb.size());
    const std::string_view number = LeadingNumber(behind);
    if (number.empty()) continue;
    if (EndsClause(Behind(behind, number))) return number;
  }
  return {};
}

// Returns the number that a sentence gives: the one after its last "="; else the one at its
// beginning; else the one that NumberOfVerb() finds; else its last one.
std::string_view NumberOf(std::string_view sentence) {
  const size_t equals = sentence.rfind('=');
  if (equals != std::string_view::npos) {
    const std::string_view behind = sentence.substr(equals + 1);
    const std::string_view value = LeadingNumber(behind);
    // Accepts a value that is the last one: "7" in "3 + 4 = 7", but not "9 * 2" in "18 = 9 * 2".
    const bool last = !value.empty() && std::none_of(value.end(), behind.end(), IsDigit);
    if (last) return value;
  }
  for (const std::string_view number : {LeadingNumber(sentence), NumberOfVerb(sentence)}) {
    if (!number.empty()) return number;
  }
  const std::vector<std::string_view> numbers = StandaloneNumbers(sentence);
  return numbers.empty() ? std::string_view() : numbers.back();
}

// Returns the answer of the format's kind that a phrase gives; empty: none.
std::string AnswerOfPhrase(const AnswerPhrase& phrase, const AnswerFormat& format) {
  std::string_view sentence = phrase.sentence;
  // The box must begin within the sentence, but may end after it.
  if (sentence.find("\\boxed") != std::string_view::npos) {
    const std::string_view boxed = LastBoxed(phrase.rest);
    if (!boxed.empty()) sentence = boxed;
  }
  switch (format.kind) {
    case AnswerKind::kNumber: {
      const std::string_view formula = LeadingFormula(sentence);
      if (!formula.empty() && ValueOf(formula).has_value()) return std::string(formula);
      return std::string(NumberOf(sentence));
    }
    case AnswerKind::kOption:
      return OptionOf(sentence, format.options);
    case AnswerKind::kWord:
      return std::string(FirstProseWord(sentence));
    case AnswerKind::kMath:
      break;
  }
  return {};
}

// Mark is an answer and the index in the text at which its mark begins.
struct Mark {
  Extraction found;
  size_t at = 0;
};

size_t IndexIn(std::string_view text, std::string_view part) {
  return static_cast<size_t>(part.data() - text.data());
}

Mark FromPhrases(std::string_view text, const AnswerFormat& format) {
  const std::vector<AnswerPhrase> phrases =
      format.kind == AnswerKind::kOption ? OptionPhrases(text) : AnswerPhrases(text);
  for (auto phrase = phrases.rbegin(); phrase != phrases.rend(); ++phrase) {
    const std::string answer = AnswerOfPhrase(*phrase, format);
    const size_t at = IndexIn(text, phrase->sentence);
    if (!answer.empty()) return {Found(ExtractionRule::kPhrase, answer), at};
    // A later refusal, such as "The answer is unknown", overrides an earlier guess.
    if (IsRefusal(phrase->sentence)) {
      return {Found(ExtractionRule::kPhrase, phrase->sentence), at};
    }
  }
  return {};
}

Mark FromHashes(std::string_view text, const AnswerFormat& format) {
  const HashedAnswer hashed = FindHashedAnswer(text, format);
  return {Found(ExtractionRule::kHashes, hashed.answer), hashed.at};
}

Mark FromBox(std::string_view text, const AnswerFormat& format) {
  const std::string_view boxed = LastBoxed(text);
  if (boxed.empty()) return {};
  const std::string answer =
      format.kind == AnswerKind::kOption ? OptionOf(boxed, format.options) : std::string(boxed);
  return {Found(ExtractionRule::kBoxed, answer), IndexIn(text, boxed)};
}

// Applies the rules for an answer that neither "####", a phrase nor a box announces.
Extraction FromTheRest(std::string_view text, const AnswerFormat& format) {
  if (format.kind == AnswerKind::kOption) {
    std::string letter = LoneOption(Trim(text), format.options);
    if (!letter.empty()) return {ExtractionRule::kWholeText, std::move(letter)};
    return Found(ExtractionRule::kLastLetter, LastMarkedOption(text, format.options));
  }
  if (format.kind == AnswerKind::kWord) {
    const std::string_view word = FirstProseWord(text);
    const std::string_view all = SkipMarkup(text);
    const bool alone = !word.empty() && word.begin() == all.begin() &&
                       all.substr(word.size()).find_first_not_of(".!") == std::string_view::npos;
    return alone ? Found(ExtractionRule::kWholeText, word) : Extraction();
  }
  const std::vector<std::string_view> numbers = StandaloneNumbers(text);
  if (numbers.empty()) return {};
  const auto place = static_cast<size_t>(numbers.back().begin() - text.begin());
  if (IsRefusedFrom(text, place)) return {};
  return Found(ExtractionRule::kLastNumber, numbers.back());
}

}  // namespace

Extraction ExtractAnswer(std::string_view text, const AnswerFormat& format) {
  if (IsBlank(text)) return {};
  text = SpokenPart(text);
  if (format.rules == AnswerRules::kBoxedOnly || format.kind == AnswerKind::kMath) {
    return FromBox(text, format).found;
  }
  Mark best;
  using Rule = Mark (*)(std::string_view, const AnswerFormat&);
  for (const Rule rule : {FromHashes, FromPhrases, FromBox}) {
    Mark mark = rule(text, format);
    if (mark.found.rule == ExtractionRule::kNone) continue;
    const bool is_first = best.found.rule == ExtractionRule::kNone;
    if (is_first || mark.at > best.at) best = std::move(mark);
    if (format.rules == AnswerRules::kCascade) break;
  }
  if (best.found.rule == ExtractionRule::kNone) return FromTheRest(text, format);
  return std::move(best.found);
}

bool SameAnswer(std::string_view answer, std::string_view reference, AnswerKind kind) {
  switch (kind) {
    case AnswerKind::kNumber:
      return SameNumber(answer, reference);
    case AnswerKind::kMath:
      return SameWritten(answer, reference);
    case AnswerKind::kOption:
    case AnswerKind::kWord:
      return SameWord(answer, reference);
  }
  return false;
}

Judgement JudgeAnswer(std::string_view text, std::string_view reference,
                      const AnswerFormat& format) {
  if (IsBlank(text)) return {};
  Judgement judgement = {Verdict::kNoAnswer, ExtractAnswer(text, format)};
  const Extraction& found = judgement.extraction;
  if (found.rule == ExtractionRule::kNone) return judgement;
  if (SameAnswer(found.answer, reference, format.kind)) {
    judgement.verdict = Verdict::kRight;
  } else if (IsRefusal(found.answer)) {
    judgement = {Verdict::kNoAnswer, {}};
  } else {
    judgement.verdict = Verdict::kWrong;
  }
  return judgement;
}

std::string_view AnswerRulesName(AnswerRules rules) {
  constexpr std::array<std::string_view, 3> kNames = {"cascade", "last", "boxed"};
  return kNames[static_cast<size_t>(rules)];
}

std::string_view ExtractionRuleName(ExtractionRule rule) {
  constexpr std::array<std::string_view, 7> kNames = {
      "none", "hashes", "phrase", "boxed", "last_number", "last_letter", "whole_text"};
  return kNames[static_cast<size_t>(rule)];
}

std::string_view AnswerKindName(AnswerKind kind) {
  constexpr std::array<std::string_view, 4> kNames = {"number", "formula", "option", "word"};
  return kNames[static_cast<size_t>(kind)];
}

std::string_view VerdictName(Verdict verdict) {
  constexpr std::array<std::string_view, 4> kNames = {"empty", "no_answer", "wrong", "right"};
  return kNames[static_cast<size_t>(verdict)];
}

}  // namespace ebb
