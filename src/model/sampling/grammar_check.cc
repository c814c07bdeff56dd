#include "src/model/sampling/grammar_check.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace ebb {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;
constexpr size_t kMostBrackets = 200;
constexpr size_t kMostDepth = 1000;
constexpr double kMostWays = 100000;

Status Refused(std::string_view why) {
  return InvalidArgument(fmt::format("the grammar is refused: {}", why));
}

// The end of what begins with `text[at]`: a literal, a class of characters, a token's name or a
// comment, in which braces are no repetition; `at` where there is none of these.
size_t EndOfVerbatim(std::string_view text, size_t at) {
  const auto closed_by = [&](char end, bool escapes) {
    size_t i = at + 1;
    while (i < text.size() && text[i] != end) i += escapes && text[i] == '\\' ? 2 : 1;
    return std::min(i, text.size() - 1);
  };
  switch (text[at]) {
    case '"':
      return closed_by('"', true);
    case '[':
      return closed_by(']', true);
    case '<':
      return closed_by('>', false);
    case '#':
      return closed_by('\n', false);
    default:
      return at;
  }
}

// llama.cpp counts from the smallest to the largest number of times, however that ends: "{5,3}"
// would take for ever.
Status CheckRepetitions(std::string_view grammar) {
  const auto skip = [&](size_t* at) {
    for (; *at < grammar.size(); ++*at) {
      if (grammar[*at] == '#') *at = EndOfVerbatim(grammar, *at);
      if (!std::isspace(static_cast<unsigned char>(grammar[*at]))) return;
    }
  };
  const auto number = [&](size_t* at) -> std::optional<uint64_t> {
    skip(at);
    const char* const begin = grammar.data() + std::min(*at, grammar.size());
    uint64_t value = 0;
    const auto [end, error] = std::from_chars(begin, grammar.data() + grammar.size(), value);
    if (error == std::errc::invalid_argument) return std::nullopt;
    *at = static_cast<size_t>(end - grammar.data());
    skip(at);
    return error == std::errc() ? value : std::numeric_limits<uint64_t>::max();
  };
  for (size_t i = 0; i < grammar.size(); ++i) {
    if (grammar[i] != '{') {
      i = EndOfVerbatim(grammar, i);
      continue;
    }
    size_t at = i + 1;
    const std::optional<uint64_t> least = number(&at);
    if (!least || at >= grammar.size() || grammar[at] != ',') continue;
    ++at;
    const std::optional<uint64_t> most = number(&at);
    if (!most || *least <= *most) continue;
    return Refused(fmt::format("a repetition of at least {} and at most {} times", *least, *most));
  }
  return OkStatus();
}

Status CheckBrackets(std::string_view grammar) {
  size_t depth = 0;
  for (size_t i = 0; i < grammar.size(); ++i) {
    if (grammar[i] == '(' && ++depth > kMostBrackets) {
      return Refused(fmt::format("brackets within each other more than {} deep", kMostBrackets));
    }
    if (grammar[i] == ')' && depth > 0) --depth;
    i = EndOfVerbatim(grammar, i);
  }
  return OkStatus();
}

bool IsOfName(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-'; }

// What stands in a sequence: text, or a reference to a rule.
struct Symbol {
  static constexpr size_t kText = std::numeric_limits<size_t>::max();
  size_t rule = kText;
  bool may_be_left_out = false;  // "?", "*", "{0,3}"
};
using Sequence = std::vector<Symbol>;
struct Rule {
  std::vector<Sequence> alternates = {{}};
  [[nodiscard]] bool may_be_empty() const {
    return std::ranges::any_of(alternates, [](const Sequence& one) { return one.empty(); });
  }
};

// Rules and, as rules without a name, what stands in brackets. As far as it is a grammar.
class Rules {
 public:
  explicit Rules(std::string_view grammar) : text_(grammar) {
    while (Read()) {
    }
  }
  [[nodiscard]] const std::vector<Rule>& all() const { return all_; }

 private:
  // One symbol. False: the end, or what libllama refuses.
  bool Read() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
    if (at_ >= text_.size()) return false;
    const char c = text_[at_];
    if (IsOfName(c)) return ReadName();
    if (open_.empty()) {
      if (c != '#') return false;
      at_ = EndOfVerbatim(text_, at_) + 1;
      return true;
    }
    switch (c) {
      case '#':
        at_ = EndOfVerbatim(text_, at_) + 1;
        return true;
      case '"':
      case '[':
      case '<':
        at_ = EndOfVerbatim(text_, at_) + 1;
        Current().push_back({});
        return true;
      case '!':
        ++at_;
        return true;
      case '.':
        ++at_;
        Current().push_back({});
        return true;
      case '|':
        ++at_;
        all_[open_.back()].alternates.emplace_back();
        return true;
      case '(':
        ++at_;
        Current().push_back({.rule = all_.size()});
        open_.push_back(all_.size());
        all_.emplace_back();
        return true;
      case ')':
        ++at_;
        open_.pop_back();
        return !open_.empty();
      case '*':
      case '?':
        return ReadTimes(/*may_be_none=*/true);
      case '+':
        return ReadTimes(/*may_be_none=*/false);
      case '{': {
        size_t digits = at_ + 1;
        while (digits < text_.size() && (text_[digits] == ' ' || text_[digits] == '0')) ++digits;
        const bool is_zero = digits < text_.size() && digits > at_ + 1 &&
                             text_[digits - 1] == '0' &&
                             !std::isdigit(static_cast<unsigned char>(text_[digits]));
        at_ = std::min(text_.find('}', at_), text_.size() - 1);
        return ReadTimes(is_zero);
      }
      default:
        return false;
    }
  }

  bool ReadName() {
    const size_t begin = at_;
    while (at_ < text_.size() && IsOfName(text_[at_])) ++at_;
    const size_t rule = RuleOf(text_.substr(begin, at_ - begin));
    size_t next = at_;
    while (next < text_.size() && (text_[next] == ' ' || text_[next] == '\t')) ++next;
    if (open_.size() <= 1 && text_.substr(next).starts_with("::=")) {
      at_ = next + 3;
      open_ = {rule};
      // The last rule of a name holds.
      all_[rule].alternates.assign(1, {});
      return true;
    }
    if (open_.empty()) return false;
    Current().push_back({.rule = rule});
    return true;
  }

  bool ReadTimes(bool may_be_none) {
    ++at_;
    if (Current().empty()) return false;
    Current().back().may_be_left_out |= may_be_none;
    return true;
  }

  Sequence& Current() { return all_[open_.back()].alternates.back(); }
  size_t RuleOf(std::string_view name) {
    const auto [found, is_new] = names_.emplace(name, all_.size());
    if (is_new) all_.emplace_back();
    return found->second;
  }

  const std::string_view text_;
  size_t at_ = 0;
  std::vector<Rule> all_;
  std::map<std::string_view, size_t> names_;
  std::vector<size_t> open_;  // the rule that is read, and the brackets within it
};

// The rules that may stand first in it, as libllama finds them: behind what may be left out, and
// behind a rule with an empty alternate.
std::vector<size_t> FirstRules(const Rule& rule, const std::vector<bool>& may_be_empty) {
  std::vector<size_t> first;
  for (const Sequence& sequence : rule.alternates) {
    for (const Symbol& symbol : sequence) {
      const bool is_text = symbol.rule == Symbol::kText;
      if (!is_text) first.push_back(symbol.rule);
      if (!symbol.may_be_left_out && (is_text || !may_be_empty[symbol.rule])) break;
    }
  }
  return first;
}

// libllama follows each way from a rule to those that it may begin with, one call within another.
// Rules that begin with themselves it refuses.
Status CheckWays(const std::vector<Rule>& rules) {
  struct Node {
    std::vector<size_t> first;
    size_t next = 0;  // of `first` to be looked at
    size_t depth = 1;
    double ways = 1;
    enum class State { kUnseen, kOpen, kDone } state = State::kUnseen;
  };
  std::vector<Node> nodes(rules.size());
  std::vector<bool> may_be_empty;
  for (const Rule& rule : rules) may_be_empty.push_back(rule.may_be_empty());
  std::vector<size_t> stack;
  for (size_t root = 0; root < rules.size(); ++root) {
    if (nodes[root].state == Node::State::kUnseen) stack.push_back(root);
    while (!stack.empty()) {
      Node& node = nodes[stack.back()];
      if (node.state == Node::State::kUnseen) {
        node.state = Node::State::kOpen;
        node.first = FirstRules(rules[stack.back()], may_be_empty);
      }
      if (node.next < node.first.size()) {
        const Node& other = nodes[node.first[node.next]];
        if (other.state == Node::State::kUnseen) {
          stack.push_back(node.first[node.next]);
          continue;
        }
        ++node.next;
        if (other.state == Node::State::kOpen) continue;
        node.depth = std::max(node.depth, other.depth + 1);
        node.ways += other.ways;
        continue;
      }
      node.state = Node::State::kDone;
      node.first = {};
      stack.pop_back();
      if (node.depth > kMostDepth || node.ways > kMostWays) {
        return Refused(fmt::format(
            "rules that begin with each other more than {} deep, or in more than {:.0f} "
            "ways",
            kMostDepth, kMostWays));
      }
    }
  }
  return OkStatus();
}

}  // namespace

Status CheckGrammar(std::string_view grammar) {
  if (grammar.size() > kMostBytes) {
    return Refused(fmt::format("expected at most {} bytes, found {}", kMostBytes, grammar.size()));
  }
  EBB_RETURN_IF_ERROR(CheckRepetitions(grammar));
  EBB_RETURN_IF_ERROR(CheckBrackets(grammar));
  return CheckWays(Rules(grammar).all());
}

}  // namespace ebb
