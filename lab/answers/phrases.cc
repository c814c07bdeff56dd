#include "lab/answers/phrases.h"

#include <algorithm>
#include <array>
#include <span>
#include <string>

#include "lab/answers/formula.h"
#include "lab/answers/numbers.h"
#include "lab/answers/text.h"

namespace ebb {
namespace {

// Returns where the sentence ends: at a line's end, or at "." or "?" before white space or the end
// of the text.
size_t SentenceEnd(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') return i;
    if ((text[i] == '.' || text[i] == '?') &&
        (i + 1 == text.size() || IsSpace(text[i + 1]) || text[i + 1] == '*')) {
      return i;
    }
  }
  return text.size();
}

// Returns the index after an answer phrase: after "answer is", "answer:", "**Answer**:", "answer =
// "; npos: the text after "answer" is no phrase.
size_t PhraseEnd(std::string_view lower, size_t after_answer) {
  // Limits the search: more markup than this is no phrase.
  const std::string_view rest = lower.substr(after_answer, 16);
  const std::string_view behind = SkipMarkup(rest);
  if (behind.empty()) return std::string_view::npos;
  size_t end = after_answer + static_cast<size_t>(behind.data() - rest.data());
  if (behind.starts_with(':') || behind.starts_with('=')) return end + 1;
  if (!behind.starts_with("is") || (behind.size() > 2 && IsAlphanumeric(behind[2])) ||
      end == after_answer) {
    return std::string_view::npos;
  }
  end += 2;
  while (end < lower.size() && (lower[end] == ':' || IsSpace(lower[end]))) ++end;
  return end;
}

// Returns the text without leading words that do not belong to the answer.
std::string_view SkipFillers(std::string_view text) {
  constexpr std::array<std::string_view, 13> kFillers = {
      "therefore", "thus",   "then",   "simply",        "indeed", "equal to", "given by",
      "clearly",   "option", "choice", "approximately", "just",   "exactly"};
  for (bool more = true; more;) {
    more = false;
    text = SkipMarkup(text);
    for (const std::string_view filler : kFillers) {
      const size_t n = filler.size();
      if (text.size() <= n || IsAlphanumeric(text[n]) || LowerCase(text.substr(0, n)) != filler) {
        continue;
      }
      text.remove_prefix(n);
      while (text.starts_with(',') || text.starts_with(':')) text.remove_prefix(1);
      more = true;
    }
  }
  return text;
}

// Returns the text in lower case, with ' for typographic apostrophes.
std::string WithPlainApostrophes(std::string_view text) {
  constexpr std::string_view kApostrophe = "’";
  std::string plain;
  plain.reserve(text.size());
  while (!text.empty()) {
    const bool typographic = text.starts_with(kApostrophe);
    plain += typographic ? '\'' : LowerCase(text.front());
    text.remove_prefix(typographic ? kApostrophe.size() : 1);
  }
  return plain;
}

bool HasAny(std::string_view lower, std::span<const std::string_view> phrases) {
  return std::any_of(phrases.begin(), phrases.end(), [&](std::string_view phrase) {
    return lower.find(phrase) != std::string_view::npos;
  });
}

// Returns whether the sentence gives no answer: "The answer is not 5", "... is correct", "... is
// given by the following".
bool SaysNothing(std::string_view sentence) {
  constexpr std::array<std::string_view, 9> kFirstWords = {
      "not", "correct", "incorrect", "wrong", "right", "found", "obtained", "as", "clear"};
  size_t end = 0;
  while (end < sentence.size() && end < 12 && IsLetter(sentence[end])) ++end;
  const std::string first = LowerCase(sentence.substr(0, end));
  return std::find(kFirstWords.begin(), kFirstWords.end(), first) != kFirstWords.end();
}

// Returns whether the phrase introduces a list on the next lines: "Let's find the answer:", then
// "1. Janet sells ...".
bool AnnouncesList(std::string_view between, std::string_view rest) {
  if (between.find('\n') == std::string_view::npos) return false;
  const std::string_view line = rest.substr(0, rest.find('\n'));
  const std::string_view number = LeadingNumber(line);
  return !number.empty() && IsEnumerated(Behind(line, number));
}

struct PhrasePlace {
  size_t begin;  // index of the first byte of the word "answer"
  size_t end;    // index after the phrase
};

// Finds the word "answer" in the text and adds its places, except within ```, where a program
// prints or computes it, and except in names such as "final_answer = 5".
void AddAnswers(std::string_view lower, std::vector<PhrasePlace>* places) {
  constexpr std::string_view kAnswer = "answer";
  constexpr std::string_view kFence = "```";
  bool in_code = false;
  size_t fence = lower.find(kFence);
  for (size_t at = lower.find(kAnswer); at != std::string_view::npos;
       at = lower.find(kAnswer, at + kAnswer.size())) {
    for (; fence < at; fence = lower.find(kFence, fence + kFence.size())) in_code = !in_code;
    const bool is_name = at > 0 && (lower[at - 1] == '_' || IsLetter(lower[at - 1]));
    const size_t end = PhraseEnd(lower, at + kAnswer.size());
    if (!in_code && !is_name && end != std::string_view::npos) places->push_back({at, end});
  }
}

// Adds the places of phrases that praise an option, such as "the best option is"; "The wrong option
// is B" is none.
void AddChoices(std::string_view lower, std::vector<PhrasePlace>* places) {
  constexpr std::array<std::string_view, 9> kPraise = {"best",     "correct",  "right",
                                                       "answer",   "likely",   "appropriate",
                                                       "accurate", "suitable", "final"};
  for (const std::string_view word : {"option", "choice"}) {
    for (size_t at = lower.find(word); at != std::string_view::npos;
         at = lower.find(word, at + word.size())) {
      const size_t end = PhraseEnd(lower, at + word.size());
      if (end == std::string_view::npos || lower[end - 1] == '=') continue;
      const size_t length = std::min<size_t>(at, 16);
      std::string_view before = SkipMarkup(lower.substr(at - length, length));
      before = before.substr(before.find_last_of(" \n*") + 1);
      const bool praised = std::find(kPraise.begin(), kPraise.end(), before) != kPraise.end();
      if (praised) places->push_back({at, end});
    }
  }
}

// Returns the phrases at these places. REQUIRES: `places` are in ascending order.
std::vector<AnswerPhrase> PhrasesAt(std::string_view text, std::span<const PhrasePlace> places) {
  std::vector<AnswerPhrase> phrases;
  for (size_t i = 0; i < places.size(); ++i) {
    const size_t limit = i + 1 < places.size() ? places[i + 1].begin : text.size();
    if (places[i].end >= limit) continue;
    const std::string_view rest = SkipFillers(text.substr(places[i].end, limit - places[i].end));
    const std::string_view sentence = SkipMarkup(rest.substr(0, SentenceEnd(rest)));
    if (sentence.empty() || SaysNothing(sentence)) continue;
    const std::string_view between =
        text.substr(places[i].end, static_cast<size_t>(rest.data() - text.data()) - places[i].end);
    if (AnnouncesList(between, rest)) continue;
    phrases.push_back({sentence, rest});
  }
  return phrases;
}

}  // namespace

std::vector<AnswerPhrase> AnswerPhrases(std::string_view text) {
  const std::string lower = LowerCase(text);
  std::vector<PhrasePlace> places;
  AddAnswers(lower, &places);
  return PhrasesAt(text, places);
}

std::vector<AnswerPhrase> OptionPhrases(std::string_view text) {
  const std::string lower = LowerCase(text);
  std::vector<PhrasePlace> places;
  AddAnswers(lower, &places);
  AddChoices(lower, &places);
  std::sort(places.begin(), places.end(),
            [](const PhrasePlace& a, const PhrasePlace& b) { return a.begin < b.begin; });
  return PhrasesAt(text, places);
}

bool IsRefusal(std::string_view answer) {
  constexpr std::array<std::string_view, 12> kNoAnswer = {"cannot be determined",
                                                          "can't be determined",
                                                          "can not be determined",
                                                          "cannot determine",
                                                          "not enough information",
                                                          "insufficient information",
                                                          "impossible to determine",
                                                          "unable to",
                                                          "don't know",
                                                          "do not know",
                                                          "i cannot",
                                                          "i can't"};
  constexpr std::array<std::string_view, 5> kWholly = {"unknown", "n/a", "not known", "unclear",
                                                       "unanswerable"};
  // Looks only at the beginning, because a refusal is a sentence at most.
  const std::string lower = WithPlainApostrophes(SkipMarkup(answer.substr(0, 400)));
  return HasAny(lower, kNoAnswer) ||
         std::any_of(kWholly.begin(), kWholly.end(), [&](std::string_view word) {
           return lower == word || lower == "\\text{" + std::string(word) + "}";
         });
}

bool IsRefusedFrom(std::string_view text, size_t at) {
  constexpr std::array<std::string_view, 18> kRefusals = {
      "i cannot answer",   "i can't answer",   "i cannot help",    "i can't help",
      "i cannot solve",    "i can't solve",    "i cannot provide", "i can't provide",
      "i cannot assist",   "i can't assist",   "i'm unable",       "i am unable",
      "i don't know",      "i do not know",    "i'm not able",     "i am not able",
      "answer is unknown", "i'm not sure what"};
  size_t begin = std::min(at, text.size());
  while (begin > 0 && text[begin - 1] != '\n' && text[begin - 1] != '.' && text[begin - 1] != '?') {
    --begin;
  }
  const std::string lower = WithPlainApostrophes(text.substr(begin));
  return HasAny(lower, kRefusals) || lower.find("cannot be determined") != std::string::npos ||
         lower.find("not enough information") != std::string::npos;
}

}  // namespace ebb
