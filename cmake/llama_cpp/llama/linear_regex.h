// Splits text by a regular expression as std::regex_iterator does, in time and memory linear in the
// text. Used by the patched pre-tokenizers of libllama (llama.patch): std::regex calls itself for
// each character and so overflows the stack on a long run of one kind of character.
//
// The expression becomes a nondeterministic automaton. Positions are visited from the text's end to
// its begin; for each state the automaton keeps the end of the match that ECMAScript's order of
// choices finds from there. A state depends only on states at the same position and at the next
// one, so two columns of states suffice, and nothing is tried twice.
//
// Supported are alternatives, groups, (?: ), (?= ), (?! ), greedy * + ? {n} {n,} {n,m}, sets, $ for
// the end of the text, and the escapes \s \S \d \D \w \W \t \n \r \f \v. Other syntax is refused.
#ifndef EBB_LINEAR_REGEX_H_
#define EBB_LINEAR_REGEX_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <regex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "regex_program.h"

namespace ebb {

template <typename CharT>
class LinearRegex {
 public:
  // Throws std::regex_error where std::regex does, and for syntax that is not supported.
  explicit LinearRegex(const std::basic_string<CharT>& pattern)
      : LinearRegex(RegexParser<CharT>(pattern).Parse()) {}

  // Appends the lengths of the matches in text[0, size) and of the text between them. A match of no
  // characters has the length 0.
  void Split(const CharT* text, size_t size, std::vector<size_t>* lengths) {
    if (size >= kNoMatch) Refuse(std::regex_constants::error_space);
    FindMatches(text, size);
    size_t end = 0;  // of the match before
    size_t from = 0;
    while (from <= size) {
      if (match_end_[from] == kNoMatch) {
        ++from;
        continue;
      }
      if (from > end) lengths->push_back(from - end);
      end = match_end_[from];
      lengths->push_back(end - from);
      // After an empty match std::regex_iterator looks for one that is not empty at the same place.
      // Split() does not: pre-tokenizers use empty matches only in an expression that has no other.
      from = end > from ? end : from + 1;
    }
    if (end < size) lengths->push_back(size - end);
  }

 private:
  using Kind = RegexProgram::Kind;
  using State = RegexProgram::State;
  using Set = RegexProgram::Set;
  using Range = RegexProgram::Range;
  using Run = RegexProgram::Run;
  static constexpr uint32_t kNoMatch = std::numeric_limits<uint32_t>::max();
  static constexpr uint32_t kNumBytes = 256;

  explicit LinearRegex(RegexProgram program)
      : states_(std::move(program.states)),
        sets_(std::move(program.sets)),
        runs_(std::move(program.runs)),
        start_(program.start) {
    OrderStates();
    ClassifyCharacters();
  }

  static uint32_t Code(CharT c) { return static_cast<std::make_unsigned_t<CharT>>(c); }
  [[noreturn]] static void Refuse(std::regex_constants::error_type why) {
    throw std::regex_error(why);
  }

  // Sorts the states so that each one comes after those it depends on at the same position.

  void OrderStates() {
    marks_.assign(states_.size(), Mark::kNew);
    std::vector<int> firsts = {start_};  // states that follow a character
    while (!firsts.empty()) {
      const int first = firsts.back();
      firsts.pop_back();
      Order(first, &firsts);
    }
  }

  // Recursion is as deep as groups are nested: a state that follows a character is put into
  // *firsts.
  void Order(int state, std::vector<int>* firsts) {
    if (marks_[state] == Mark::kDone) return;
    // A loop whose body may be empty.
    if (marks_[state] == Mark::kOpen) Refuse(std::regex_constants::error_complexity);
    marks_[state] = Mark::kOpen;
    const State& s = states_[state];
    if (s.kind == Kind::kCharacter || s.kind == Kind::kRun) {
      firsts->push_back(s.next);
    } else {
      if (s.next >= 0) Order(s.next, firsts);
      if (s.other >= 0) Order(s.other, firsts);
    }
    marks_[state] = Mark::kDone;
    order_.push_back(state);
  }

  // Puts characters that belong to the same sets into one class.

  void ClassifyCharacters() {
    for (const Set& set : sets_) {
      for (const Range& range : set.ranges) {
        bounds_.push_back(range.first);
        if (range.last < std::numeric_limits<uint32_t>::max()) bounds_.push_back(range.last + 1);
      }
    }
    std::sort(bounds_.begin(), bounds_.end());
    bounds_.erase(std::unique(bounds_.begin(), bounds_.end()), bounds_.end());
    for (uint32_t c = 0; c < kNumBytes; ++c) class_of_byte_[c] = FindClass(c);
    class_sets_.assign((bounds_.size() + 1) * sets_.size(), 0);
    for (size_t c = 0; c <= bounds_.size(); ++c) {
      const uint32_t first = c == 0 ? 0 : bounds_[c - 1];
      for (size_t i = 0; i < sets_.size(); ++i) {
        class_sets_[c * sets_.size() + i] = Contains(sets_[i], first);
      }
      order_of_class_.push_back(StatesFor(&class_sets_[c * sets_.size()]));
    }
    order_at_end_ = StatesFor(nullptr);
  }

  // The states of which one may match at a character, in their order. is_in: as in MatchEnd().
  std::vector<int> StatesFor(const uint8_t* is_in) const {
    std::vector<int> order;
    std::vector<bool> may(states_.size());
    for (const int i : order_) {
      const State& s = states_[i];
      switch (s.kind) {
        case Kind::kMatch:
        case Kind::kRun:  // counts at each character
          may[i] = true;
          break;
        case Kind::kCharacter:
          may[i] = is_in != nullptr && is_in[s.set] != 0;
          break;
        case Kind::kChoice:
          may[i] = may[s.next] || may[s.other];
          break;
        case Kind::kAhead:
          may[i] = may[s.next] && may[s.other];
          break;
        case Kind::kNotAhead:
          may[i] = may[s.next];
          break;
        case Kind::kTextEnd:
          may[i] = is_in == nullptr && may[s.next];
          break;
      }
      if (may[i]) order.push_back(i);
    }
    return order;
  }

  static bool Contains(const Set& set, uint32_t code) {
    const bool is_in_range =
        std::any_of(set.ranges.begin(), set.ranges.end(),
                    [&](const Range& range) { return range.first <= code && code <= range.last; });
    return is_in_range != set.negated;
  }

  size_t FindClass(uint32_t code) const {
    return std::upper_bound(bounds_.begin(), bounds_.end(), code) - bounds_.begin();
  }
  size_t ClassOf(uint32_t code) const {
    return code < kNumBytes ? class_of_byte_[code] : FindClass(code);
  }

  // Sets match_end_[i] to the end of the match that begins at i.
  void FindMatches(const CharT* text, size_t size) {
    match_end_.assign(size + 1, kNoMatch);
    here_.assign(states_.size(), kNoMatch);
    ahead_.assign(states_.size(), kNoMatch);
    for (Run& run : runs_) run.found = 0;
    for (size_t at = size + 1; at-- > 0;) {
      here_.swap(ahead_);
      std::fill(here_.begin(), here_.end(), kNoMatch);
      const size_t cls = at < size ? ClassOf(Code(text[at])) : 0;
      const uint8_t* const is_in = at < size ? &class_sets_[cls * sets_.size()] : nullptr;
      const std::vector<int>& order = at < size ? order_of_class_[cls] : order_at_end_;
      for (const int i : order) here_[i] = MatchEnd(states_[i], at, is_in);
      for (Run& run : runs_) run.next[at % run.next.size()] = here_[states_[run.state].next];
      match_end_[at] = here_[start_];
    }
  }

  // is_in: for each set, whether the character at `at` is in it; null at the end of the text.
  uint32_t MatchEnd(const State& s, size_t at, const uint8_t* is_in) {
    switch (s.kind) {
      case Kind::kMatch:
        return static_cast<uint32_t>(at);
      case Kind::kCharacter:
        return is_in != nullptr && is_in[s.set] != 0 ? ahead_[s.next] : kNoMatch;
      case Kind::kRun: {
        Run& run = runs_[s.other];
        run.found = is_in != nullptr && is_in[s.set] != 0 ? run.found + 1 : 0;
        return run.found >= run.count ? run.next[(at + run.count) % run.next.size()] : kNoMatch;
      }
      case Kind::kChoice:
        return here_[s.next] != kNoMatch ? here_[s.next] : here_[s.other];
      case Kind::kAhead:
        return here_[s.other] != kNoMatch ? here_[s.next] : kNoMatch;
      case Kind::kNotAhead:
        return here_[s.other] == kNoMatch ? here_[s.next] : kNoMatch;
      case Kind::kTextEnd:
        return is_in == nullptr ? here_[s.next] : kNoMatch;
    }
    return kNoMatch;
  }

  enum class Mark : uint8_t { kNew, kOpen, kDone };

  const std::vector<State> states_;
  const std::vector<Set> sets_;
  std::vector<Run> runs_;
  const int start_;
  std::vector<Mark> marks_;
  std::vector<int> order_;
  std::vector<uint32_t> bounds_;     // where a class of characters begins
  std::vector<uint8_t> class_sets_;  // for each class and set: whether it is in it
  size_t class_of_byte_[kNumBytes];
  std::vector<std::vector<int>> order_of_class_;
  std::vector<int> order_at_end_;
  std::vector<uint32_t> match_end_;
  std::vector<uint32_t> here_;
  std::vector<uint32_t> ahead_;
};

}  // namespace ebb

#endif  // EBB_LINEAR_REGEX_H_
