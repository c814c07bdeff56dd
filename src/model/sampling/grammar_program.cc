#include "src/model/sampling/grammar_program.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace ebb {
namespace {

using Instruction = GrammarInstruction;
using Op = Instruction::Kind;
// Code is a piece of a program. Until Link(), offsets of kJump and kFork are relative, and the
// value of kCall is the index of a rule.
using Code = std::vector<Instruction>;

constexpr size_t kMostBytes = size_t{1} << 20;
constexpr size_t kMostInstructions = 1000000;
constexpr size_t kMostBrackets = 200;
constexpr uint64_t kMostTimes = 2000;
constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();
// kLongestInline is the length from which on code in brackets becomes a rule of its own, so that a
// repetition around it does not copy it.
constexpr size_t kLongestInline = 64;
constexpr char32_t kLastCodePoint = 0x10FFFF;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsOfName(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || IsDigit(c) || c == '-';
}
Instruction Move(Op op, ptrdiff_t offset) {
  return {op, static_cast<uint32_t>(static_cast<int32_t>(offset))};
}

class GrammarParser {
 public:
  GrammarParser(std::string_view text, const FindGrammarToken& find_token)
      : text_(text), find_token_(find_token) {}

  Result<GrammarProgram> Parse() {
    if (text_.size() > kMostBytes) {
      return Refused(fmt::format("expected at most {} bytes, found {}", kMostBytes, text_.size()));
    }
    SkipSpace(true);
    while (at_ < text_.size()) {
      const Status status = ParseRule();
      if (!status.ok()) return Refused(status.message());
    }
    for (const auto& [name, rule] : names_) {
      if (!rules_[rule].empty()) continue;
      return Refused(fmt::format("it has no rule \"{}\"", name.substr(0, 100)));
    }
    const auto root = names_.find("root");
    if (root == names_.end()) return Refused("it has no rule \"root\"");
    return Link(root->second);
  }

 private:
  [[nodiscard]] Status Refused(const std::string& why) const {
    return InvalidArgument(fmt::format("the grammar is refused: {}", why));
  }
  [[nodiscard]] Status Error(const std::string& why) const {
    const auto line = std::count(text_.begin(), text_.begin() + static_cast<ptrdiff_t>(at_), '\n');
    return InvalidArgument(fmt::format("line {}: {}", line + 1, why));
  }
  [[nodiscard]] Status Expected(const std::string& what) const {
    if (at_ >= text_.size()) return Error("expected " + what + ", found the end");
    const auto c = static_cast<unsigned char>(text_[at_]);
    if (c < 0x20 || c >= 0x7F) return Error(fmt::format("expected {}, found byte {}", what, c));
    return Error(fmt::format("expected {}, found `{}`", what, text_[at_]));
  }
  [[nodiscard]] char Peek(size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  void SkipSpace(bool over_lines) {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '#') {
        at_ = std::min(text_.find_first_of("\r\n", at_), text_.size());
        if (at_ == text_.size() || !over_lines) return;
        continue;
      }
      const bool is_line = c == '\r' || c == '\n';
      if (c != ' ' && c != '\t' && !(is_line && over_lines)) return;
    }
  }

  std::string_view ReadName() {
    const size_t begin = at_;
    while (IsOfName(Peek())) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  uint32_t RuleOf(std::string_view name) {
    const auto [found, is_new] = names_.emplace(name, rules_.size());
    if (is_new) rules_.emplace_back();
    return static_cast<uint32_t>(found->second);
  }

  Status ParseRule() {
    const std::string_view name = ReadName();
    if (name.empty()) return Expected("the name of a rule");
    SkipSpace(false);
    if (!text_.substr(at_).starts_with("::=")) return Expected("`::=`");
    at_ += 3;
    SkipSpace(true);
    EBB_ASSIGN_OR_RETURN(Code code, ParseAlternatives(0));
    code.push_back({Op::kEnd});
    rules_[RuleOf(name)] = std::move(code);  // the last rule of a name holds
    if (at_ < text_.size() && Peek() != '\r' && Peek() != '\n')
      return Expected("the end of a line");
    SkipSpace(true);
    return OkStatus();
  }

  // Compiles alternatives: a fork to each of them, and a jump from each to the end of the last one.
  Result<Code> ParseAlternatives(size_t depth) {
    std::vector<Code> all;
    EBB_ASSIGN_OR_RETURN(all.emplace_back(), ParseSequence(depth));
    while (Peek() == '|') {
      ++at_;
      SkipSpace(true);
      EBB_ASSIGN_OR_RETURN(all.emplace_back(), ParseSequence(depth));
    }
    if (all.size() == 1) return std::move(all[0]);
    size_t size = 2 * (all.size() - 1);
    for (const Code& one : all) size += one.size();
    EBB_RETURN_IF_ERROR(Count(2 * all.size()));
    Code code;
    code.reserve(size);
    for (size_t i = 0; i < all.size(); ++i) {
      const bool is_last = i + 1 == all.size();
      if (!is_last) code.push_back(Move(Op::kFork, std::ssize(all[i]) + 2));
      code.insert(code.end(), all[i].begin(), all[i].end());
      if (!is_last) code.push_back(Move(Op::kJump, static_cast<ptrdiff_t>(size - code.size())));
    }
    return code;
  }

  Result<Code> ParseSequence(size_t depth) {
    const bool is_nested = depth > 0;
    Code code;
    Code last;  // what a repetition repeats
    bool has_last = false;
    while (at_ < text_.size()) {
      const char c = Peek();
      if (c == '*' || c == '+' || c == '?' || c == '{') {
        if (!has_last) return Expected("something to repeat");
        EBB_ASSIGN_OR_RETURN(const auto times, ReadTimes());
        EBB_ASSIGN_OR_RETURN(last, Repeated(std::move(last), times.first, times.second));
      } else {
        if (c != '"' && c != '[' && c != '.' && c != '(' && c != '<' && c != '!' && !IsOfName(c)) {
          break;
        }
        code.insert(code.end(), last.begin(), last.end());
        EBB_ASSIGN_OR_RETURN(last, ParseItem(depth));
        has_last = true;
      }
      SkipSpace(is_nested);
    }
    if (code.empty()) return last;
    code.insert(code.end(), last.begin(), last.end());
    return code;
  }

  Result<Code> ParseItem(size_t depth) {
    EBB_RETURN_IF_ERROR(Count(1));
    switch (Peek()) {
      case '"':
        return ParseLiteral();
      case '[':
        return ParseSet();
      case '.':
        ++at_;
        return AsSet(CharSet({{0, kLastCodePoint}}));
      case '(':
        return ParseGroup(depth + 1);
      case '<':
      case '!':
        return ParseToken();
      default:
        return Code{{Op::kCall, RuleOf(ReadName())}};
    }
  }

  Result<Code> ParseGroup(size_t depth) {
    if (depth > kMostBrackets) {
      return Error(fmt::format("brackets within each other more than {} deep", kMostBrackets));
    }
    ++at_;
    SkipSpace(true);
    EBB_ASSIGN_OR_RETURN(Code code, ParseAlternatives(depth));
    if (Peek() != ')') return Expected("`)`");
    ++at_;
    return code.size() > kLongestInline ? AsRule(std::move(code)) : std::move(code);
  }

  Code AsRule(Code code) {
    code.push_back({Op::kEnd});
    rules_.push_back(std::move(code));
    return {{Op::kCall, static_cast<uint32_t>(rules_.size() - 1)}};
  }

  Result<Code> ParseLiteral() {
    Code code;
    for (++at_; Peek() != '"';) {
      EBB_ASSIGN_OR_RETURN(const char32_t c, ReadChar());
      code.push_back({Op::kChar, c});
    }
    ++at_;
    EBB_RETURN_IF_ERROR(Count(code.size()));
    return code;
  }

  Code AsSet(CharSet set) {
    const std::vector<CharSet::Range>& ranges = set.ranges();
    const bool is_one = ranges.size() == 1 && ranges[0].first == ranges[0].second;
    if (is_one) return {{Op::kChar, ranges[0].first}};
    const auto [found, is_new] = set_of_.emplace(ranges, static_cast<uint32_t>(sets_.size()));
    if (is_new) sets_.push_back(std::move(set));
    return {{Op::kSet, found->second}};
  }

  Result<Code> ParseSet() {
    ++at_;
    const bool is_negated = Peek() == '^';
    if (is_negated) ++at_;
    std::vector<CharSet::Range> ranges;
    while (Peek() != ']') {
      EBB_ASSIGN_OR_RETURN(const char32_t first, ReadChar());
      char32_t last = first;
      if (Peek() == '-' && Peek(1) != ']') {
        ++at_;
        EBB_ASSIGN_OR_RETURN(last, ReadChar());
      }
      if (first <= last) ranges.emplace_back(first, last);
    }
    ++at_;
    const CharSet set = CharSet::Of(std::move(ranges));
    return AsSet(is_negated ? set.Complement() : set);
  }

  Result<Code> ParseToken() {
    const bool is_negated = Peek() == '!';
    if (is_negated) ++at_;
    if (Peek() != '<') return Expected("`<`");
    const size_t end = text_.find('>', at_);
    if (end == std::string_view::npos) return Error("expected `>` behind the name of a token");
    const std::string_view name = text_.substr(at_, end + 1 - at_);
    const Result<Token> token = find_token_(name);
    if (!token.ok()) return Error(token.status().message());
    at_ = end + 1;
    return Code{{is_negated ? Op::kNotToken : Op::kToken, static_cast<uint32_t>(*token)}};
  }

  Result<char32_t> ReadChar() {
    if (at_ >= text_.size()) return Expected("the end of a text or a class");
    if (Peek() == '\\') return ReadEscape();
    const auto lead = static_cast<unsigned char>(Peek());
    const size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
    const std::u32string points = CodePoints(text_.substr(at_, size));
    if (points.size() != 1) return Expected("UTF-8");
    at_ += size;
    return points[0];
  }

  Result<char32_t> ReadEscape() {
    const char c = Peek(1);
    size_t num_digits = 0;
    switch (c) {
      case 'x':
        num_digits = 2;
        break;
      case 'u':
        num_digits = 4;
        break;
      case 'U':
        num_digits = 8;
        break;
      case 't':
        at_ += 2;
        return U'\t';
      case 'r':
        at_ += 2;
        return U'\r';
      case 'n':
        at_ += 2;
        return U'\n';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
        at_ += 2;
        return static_cast<char32_t>(c);
      default:
        return Error("an escape that is unknown");
    }
    const std::string_view digits = text_.substr(std::min(at_ + 2, text_.size()), num_digits);
    uint32_t value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 16);
    if (error != std::errc() || end != digits.data() + num_digits || value > kLastCodePoint) {
      return Error(fmt::format("expected {} digits of a code point behind `\\{}`", num_digits, c));
    }
    at_ += 2 + num_digits;
    return value;
  }

  Result<uint64_t> ReadNumber() {
    uint64_t value = 0;
    const char* const begin = text_.data() + at_;
    const auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
    if (error == std::errc::invalid_argument) return Expected("a number");
    at_ += static_cast<size_t>(end - begin);
    SkipSpace(true);
    return error == std::errc() ? value : kNoLimit;
  }

  // Reads the least and the most repetitions of "*", "+", "?" or "{...}".
  Result<std::pair<uint64_t, uint64_t>> ReadTimes() {
    const char c = Peek();
    ++at_;
    if (c == '*') return std::pair(uint64_t{0}, kNoLimit);
    if (c == '+') return std::pair(uint64_t{1}, kNoLimit);
    if (c == '?') return std::pair(uint64_t{0}, uint64_t{1});
    SkipSpace(true);
    EBB_ASSIGN_OR_RETURN(const uint64_t least, ReadNumber());
    uint64_t most = least;
    if (Peek() == ',') {
      ++at_;
      SkipSpace(true);
      most = kNoLimit;
      if (Peek() != '}') {
        EBB_ASSIGN_OR_RETURN(most, ReadNumber());
      }
    }
    if (Peek() != '}') return Expected("`}`");
    ++at_;
    if (least > most) {
      return Error(fmt::format("a repetition of at least {} and at most {} times", least, most));
    }
    if (least > kMostTimes) {
      return Error(
          fmt::format("a repetition of at least {} times: expected at most {}", least, kMostTimes));
    }
    return std::pair(least, most > kMostTimes ? kNoLimit : most);
  }

  // Repeats `part` inline if it is one instruction, and otherwise as calls.
  Result<Code> Repeated(Code part, uint64_t least, uint64_t most) {
    const bool is_unlimited = most == kNoLimit;
    const size_t copies = is_unlimited ? least + 1 : most;
    if (copies > 1 && part.size() > 1) part = AsRule(std::move(part));
    EBB_RETURN_IF_ERROR(Count(copies * part.size() + (is_unlimited ? 2 : most - least)));
    Code code;
    const auto add = [&] { code.insert(code.end(), part.begin(), part.end()); };
    for (uint64_t i = 0; i < least; ++i) add();
    const ptrdiff_t size = std::ssize(part);
    if (is_unlimited) {
      code.push_back(Move(Op::kFork, size + 2));
      add();
      code.push_back(Move(Op::kJump, -(size + 1)));
      return code;
    }
    for (uint64_t left = most - least; left > 0; --left) {
      code.push_back(Move(Op::kFork, static_cast<ptrdiff_t>(left) * (size + 1)));
      add();
    }
    return code;
  }

  Status Count(size_t instructions) {
    num_instructions_ += instructions;
    if (num_instructions_ <= kMostInstructions) return OkStatus();
    return Error(fmt::format("its repetitions come to more than {} characters and rules",
                             kMostInstructions));
  }

  GrammarProgram Link(size_t root) {
    GrammarProgram program;
    program.sets = std::move(sets_);
    program.code.push_back({Op::kEnd});
    std::vector<uint32_t> begins;
    for (const Code& rule : rules_) {
      begins.push_back(static_cast<uint32_t>(program.code.size()));
      program.code.insert(program.code.end(), rule.begin(), rule.end());
    }
    std::vector<char32_t>& bounds = program.bounds;
    bounds.push_back(0);
    for (uint32_t i = 0; i < program.code.size(); ++i) {
      Instruction& one = program.code[i];
      if (one.kind == Op::kJump || one.kind == Op::kFork) one.value += i;
      if (one.kind == Op::kCall) one.value = begins[one.value];
      if (one.kind == Op::kChar) bounds.insert(bounds.end(), {one.value, one.value + 1});
    }
    for (const CharSet& set : program.sets) {
      for (const auto& [first, last] : set.ranges()) bounds.insert(bounds.end(), {first, last + 1});
    }
    std::ranges::sort(bounds);
    bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
    for (char32_t c = 0; c < 128; ++c) program.ascii_classes[c] = program.ClassOf(c);
    program.root = begins[root];
    return program;
  }

  const std::string_view text_;
  const FindGrammarToken& find_token_;
  size_t at_ = 0;
  std::vector<Code> rules_;  // of those that are not read yet: empty
  std::map<std::string_view, size_t> names_;
  std::vector<CharSet> sets_;
  std::map<std::vector<CharSet::Range>, uint32_t> set_of_;
  size_t num_instructions_ = 0;
};

}  // namespace

uint32_t GrammarProgram::ClassOf(char32_t c) const {
  return static_cast<uint32_t>(std::ranges::upper_bound(bounds, c) - bounds.begin() - 1);
}

uint32_t GrammarProgram::Settled(uint32_t at) const {
  while (code[at].kind == Op::kJump) at = code[at].value;
  return code[at].kind == Op::kEnd ? 0 : at;
}

Result<GrammarProgram> ParseGrammar(std::string_view grammar, const FindGrammarToken& find_token) {
  return GrammarParser(grammar, find_token).Parse();
}

}  // namespace ebb
