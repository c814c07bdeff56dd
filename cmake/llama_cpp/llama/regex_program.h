// The first half of LinearRegex (linear_regex.h): an ECMAScript expression becomes states of a
// nondeterministic automaton.
#ifndef EBB_REGEX_PROGRAM_H_
#define EBB_REGEX_PROGRAM_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <regex>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace ebb {

struct RegexProgram {
  enum class Kind : uint8_t { kMatch, kCharacter, kRun, kChoice, kAhead, kNotAhead, kTextEnd };
  struct State {
    Kind kind;
    int next = -1;   // kChoice: the first choice
    int other = -1;  // kChoice: the second one; lookaheads: their expression; kRun: which run
    int set = -1;    // kCharacter, kRun
  };
  // `count` characters of one set, as in \s{512}: 512 states would be visited at each position.
  struct Run {
    int state;
    uint32_t count;
    uint32_t found = 0;          // characters of the set from here on
    std::vector<uint32_t> next;  // of the last `count` + 1 positions: the match behind them
  };
  struct Range {
    uint32_t first;
    uint32_t last;
  };
  struct Set {
    std::vector<Range> ranges;
    bool negated = false;
  };

  std::vector<State> states;
  std::vector<Set> sets;
  std::vector<Run> runs;
  int start = -1;
};

template <typename CharT>
class RegexParser {
 public:
  explicit RegexParser(const std::basic_string<CharT>& pattern) : pattern_(pattern) {}

  // Throws std::regex_error.
  RegexProgram Parse() {
    const int match = Add({Kind::kMatch});
    program_.start = ParseAlternatives(match);
    if (at_ != pattern_.size()) Refuse(std::regex_constants::error_paren);
    return std::move(program_);
  }

 private:
  using Kind = RegexProgram::Kind;
  using Set = RegexProgram::Set;
  using Range = RegexProgram::Range;
  using State = RegexProgram::State;
  static constexpr int kMaxStates = 10000;
  static constexpr int kNoLimit = -1;

  static uint32_t Code(CharT c) { return static_cast<std::make_unsigned_t<CharT>>(c); }
  [[noreturn]] static void Refuse(std::regex_constants::error_type why) {
    throw std::regex_error(why);
  }

  int Add(State state) {
    if (program_.states.size() >= kMaxStates) Refuse(std::regex_constants::error_complexity);
    program_.states.push_back(state);
    return static_cast<int>(program_.states.size()) - 1;
  }
  bool IsNext(char c) const { return at_ < pattern_.size() && Code(pattern_[at_]) == Code(c); }
  bool Take(char c) {
    if (!IsNext(c)) return false;
    ++at_;
    return true;
  }
  CharT TakeAny() {
    if (at_ == pattern_.size()) Refuse(std::regex_constants::error_escape);
    return pattern_[at_++];
  }

  // Each of the functions below that takes `next` reads a part of the pattern and returns the state
  // that the part begins with; the part's end leads on to the state `next`.

  int ParseAlternatives(int next) {
    const int first = ParseSequence(next);
    if (!Take('|')) return first;
    const int others = ParseAlternatives(next);
    return Add({Kind::kChoice, first, others});
  }

  // Compiles the last atom first, since each atom leads on to the one behind it.
  int ParseSequence(int next) {
    struct Item {
      size_t begin;
      int least;
      int most;
    };
    std::vector<Item> items;
    while (at_ < pattern_.size() && !IsNext('|') && !IsNext(')')) {
      Item item = {at_, 1, 1};
      SkipAtom();
      ReadQuantifier(&item.least, &item.most);
      items.push_back(item);
    }
    const size_t end = at_;
    for (size_t i = items.size(); i-- > 0;) {
      next = Repeat(items[i].begin, items[i].least, items[i].most, next);
    }
    at_ = end;
    return next;
  }

  void SkipAtom() {
    int depth = 0;
    do {
      if (at_ == pattern_.size()) Refuse(std::regex_constants::error_paren);
      if (Take('(')) {
        ++depth;
      } else if (Take(')')) {
        --depth;
      } else if (Take('[')) {
        while (!Take(']')) {
          if (Take('\\') && at_ == pattern_.size()) Refuse(std::regex_constants::error_brack);
          if (at_ == pattern_.size()) Refuse(std::regex_constants::error_brack);
          ++at_;
        }
      } else if (TakeAny() == CharT('\\')) {
        TakeAny();
      }
    } while (depth > 0);
  }

  void ReadQuantifier(int* least, int* most) {
    if (Take('*')) {
      *least = 0, *most = kNoLimit;
    } else if (Take('+')) {
      *most = kNoLimit;
    } else if (Take('?')) {
      *least = 0;
    } else if (Take('{')) {
      *least = *most = ReadNumber();
      if (Take(',')) *most = IsNext('}') ? kNoLimit : ReadNumber();
      if (!Take('}') || (*most != kNoLimit && *most < *least)) {
        Refuse(std::regex_constants::error_badbrace);
      }
    } else {
      return;
    }
    // Lazy and possessive quantifiers, and two in a row, are not supported.
    if (IsNext('?') || IsNext('+') || IsNext('*') || IsNext('{')) {
      Refuse(std::regex_constants::error_badrepeat);
    }
  }

  int ReadNumber() {
    int number = 0;
    const size_t begin = at_;
    while (at_ < pattern_.size() && Code(pattern_[at_]) - Code('0') < 10 && number < kMaxStates) {
      number = 10 * number + static_cast<int>(Code(pattern_[at_++]) - Code('0'));
    }
    if (at_ == begin) Refuse(std::regex_constants::error_badbrace);
    return number;
  }

  int Repeat(size_t atom, int least, int most, int next) {
    const auto compile = [&](int then) {
      at_ = atom;
      return ParseAtom(then);
    };
    int first = next;
    if (most == kNoLimit) {
      const int loop = Add({Kind::kChoice, -1, next});
      const int body = compile(loop);
      program_.states[loop].next = body;
      first = loop;
    }
    for (int i = least; i < most; ++i) {
      const int body = compile(first);
      first = Add({Kind::kChoice, body, next});
    }
    if (least > 1 && least == most && !IsGroup(atom)) return AddRun(atom, least, next);
    for (int i = 0; i < least; ++i) first = compile(first);
    return first;
  }

  bool IsGroup(size_t atom) const {
    return Code(pattern_[atom]) == Code('(') || Code(pattern_[atom]) == Code('$');
  }

  int AddRun(size_t atom, int count, int next) {
    at_ = atom;
    const int state = ParseAtom(next);
    program_.states[state].kind = Kind::kRun;
    program_.states[state].other = static_cast<int>(program_.runs.size());
    program_.runs.push_back(
        {state, static_cast<uint32_t>(count), 0, std::vector<uint32_t>(count + 1)});
    return state;
  }

  int ParseAtom(int next) {
    if (Take('(')) return ParseGroup(next);
    if (Take('[')) return Add({Kind::kCharacter, next, -1, AddSet(ReadSet())});
    if (Take('$')) return Add({Kind::kTextEnd, next});
    if (Take('\\')) return Add({Kind::kCharacter, next, -1, AddSet(ReadEscape())});
    const CharT c = TakeAny();
    for (const char special : {'.', '^', '*', '+', '?', '{', '}', ']'}) {
      if (Code(c) == Code(special)) Refuse(std::regex_constants::error_badrepeat);
    }
    return Add({Kind::kCharacter, next, -1, AddSet(Only(Code(c)))});
  }

  int ParseGroup(int next) {
    int first = -1;
    if (Take('?')) {
      const bool is_group = Take(':');
      const bool is_ahead = !is_group && Take('=');
      if (!is_group && !is_ahead && !Take('!')) Refuse(std::regex_constants::error_paren);
      if (is_group) {
        first = ParseAlternatives(next);
      } else {
        const int match = Add({Kind::kMatch});
        const int inner = ParseAlternatives(match);
        first = Add({is_ahead ? Kind::kAhead : Kind::kNotAhead, next, inner});
      }
    } else {
      first = ParseAlternatives(next);
    }
    if (!Take(')')) Refuse(std::regex_constants::error_paren);
    return first;
  }

  static Set Only(uint32_t code) { return {{{code, code}}, false}; }

  // Reads what follows a backslash.
  Set ReadEscape() {
    const uint32_t c = Code(TakeAny());
    const Set space = {{{'\t', '\r'}, {' ', ' '}}, false};
    const Set digit = {{{'0', '9'}}, false};
    const Set word = {{{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}}, false};
    switch (c) {
      case 's':
        return space;
      case 'S':
        return {space.ranges, true};
      case 'd':
        return digit;
      case 'D':
        return {digit.ranges, true};
      case 'w':
        return word;
      case 'W':
        return {word.ranges, true};
      case 't':
        return Only('\t');
      case 'n':
        return Only('\n');
      case 'r':
        return Only('\r');
      case 'f':
        return Only('\f');
      case 'v':
        return Only('\v');
      default:
        break;
    }
    const bool is_letter_or_digit =
        c < 128 && std::any_of(word.ranges.begin(), word.ranges.end(), [&](const Range& range) {
          return range.first <= c && c <= range.last && c != '_';
        });
    if (is_letter_or_digit) Refuse(std::regex_constants::error_escape);
    return Only(c);
  }

  Set ReadSet() {
    Set set;
    set.negated = Take('^');
    while (!Take(']')) {
      Set item = Take('\\') ? ReadEscape() : Only(Code(TakeAny()));
      if (item.negated) Refuse(std::regex_constants::error_brack);
      const bool is_one = item.ranges.size() == 1 && item.ranges[0].first == item.ranges[0].last;
      const bool is_range =
          is_one && IsNext('-') && at_ + 1 < pattern_.size() && pattern_[at_ + 1] != CharT(']');
      if (is_range) {
        ++at_;
        const Set last = Take('\\') ? ReadEscape() : Only(Code(TakeAny()));
        if (last.negated || last.ranges.size() != 1 ||
            last.ranges[0].first != last.ranges[0].last ||
            last.ranges[0].first < item.ranges[0].first) {
          Refuse(std::regex_constants::error_range);
        }
        item.ranges[0].last = last.ranges[0].last;
      }
      set.ranges.insert(set.ranges.end(), item.ranges.begin(), item.ranges.end());
    }
    return set;
  }

  int AddSet(Set set) {
    program_.sets.push_back(std::move(set));
    return static_cast<int>(program_.sets.size()) - 1;
  }

  const std::basic_string<CharT>& pattern_;
  size_t at_ = 0;  // in the pattern
  RegexProgram program_;
};

}  // namespace ebb

#endif  // EBB_REGEX_PROGRAM_H_
