#include "src/model/schema/regex_grammar.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace ebb {
namespace {

using Kind = RegexNode::Kind;

// kMostTimes is the largest count in a grammar; libllama allows at most 2,000 rules for one
// repetition.
constexpr size_t kMostTimes = 1000;

RegexNode OneOf(char32_t c) { return SetNode({{c, c}}); }

RegexNode LiteralNode(std::string_view text) {
  std::vector<RegexNode> parts;
  for (const char c : text) parts.push_back(OneOf(static_cast<unsigned char>(c)));
  return Sequence(std::move(parts));
}

RegexNode Bounded(const RegexNode& node);

// Returns at most `most` repetitions, split into repetitions that are short enough.
RegexNode UpTo(const RegexNode& part, size_t most) {
  if (most <= kMostTimes) return Repeated(part, 0, most);
  const size_t whole = most / kMostTimes, rest = most % kMostTimes;
  const RegexNode block = Repeated(part, kMostTimes, kMostTimes);
  // Splits so that at each point at most one block is open, in addition to expressions that end
  // between blocks.
  return Choice(
      {Sequence({Bounded(Repeated(block, 0, whole - 1)), Repeated(part, 0, kMostTimes - 1)}),
       Sequence({Bounded(Repeated(block, whole, whole)), Repeated(part, 0, rest)})});
}

RegexNode Exactly(const RegexNode& part, size_t times) {
  if (times <= kMostTimes) return Repeated(part, times, times);
  const RegexNode block = Repeated(part, kMostTimes, kMostTimes);
  const size_t whole = times / kMostTimes;
  return Sequence({Bounded(Repeated(block, whole, whole)),
                   Repeated(part, times % kMostTimes, times % kMostTimes)});
}

// Returns the expression without counts above kMostTimes.
RegexNode Bounded(const RegexNode& node) {
  RegexNode bounded = node;
  for (RegexNode& part : bounded.parts) part = Bounded(part);
  if (node.kind != Kind::kRepeat) return bounded;
  const RegexNode& part = bounded.parts[0];
  const bool is_unlimited = node.most == RegexNode::kNoLimit;
  if (node.least <= kMostTimes && (is_unlimited || node.most <= kMostTimes)) return bounded;
  if (is_unlimited) {
    return Sequence({Exactly(part, node.least), Repeated(part, 0, RegexNode::kNoLimit)});
  }
  return Sequence({Exactly(part, node.least), UpTo(part, node.most - node.least)});
}

bool IsPlain(char32_t c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

std::string InClass(char32_t c) {
  if (IsPlain(c)) return std::string(1, static_cast<char>(c));
  if (c < 0x80) return fmt::format("\\x{:02X}", static_cast<uint32_t>(c));
  return fmt::format("\\U{:08X}", static_cast<uint32_t>(c));
}

std::string ClassOf(const CharSet& set) {
  std::string text = "[";
  for (const auto& [first, last] : set.ranges()) {
    text += InClass(first);
    if (last == first) continue;
    if (last > first + 1) text += '-';
    text += InClass(last);
  }
  return text + "]";
}

std::string Times(size_t least, size_t most) {
  if (least == 0 && most == 1) return "?";
  if (most == RegexNode::kNoLimit && least <= 1) return least == 0 ? "*" : "+";
  if (most == RegexNode::kNoLimit) return fmt::format("{{{},}}", least);
  if (least == most) return fmt::format("{{{}}}", least);
  return fmt::format("{{{},{}}}", least, most);
}

// Rewrites a choice with an empty part as a repetition, because neither kind of grammar has empty
// choices.
RegexNode WithoutEmptyChoices(const RegexNode& node) {
  RegexNode well = node;
  const auto is_empty = [](const RegexNode& part) {
    return part.kind == Kind::kSequence && part.parts.empty();
  };
  if (well.kind == Kind::kChoice || well.kind == Kind::kSequence) {
    const size_t erased = std::erase_if(well.parts, is_empty);
    for (RegexNode& part : well.parts) part = WithoutEmptyChoices(part);
    if (well.parts.empty()) return {};
    if (well.kind == Kind::kChoice && erased > 0) {
      return Repeated(Choice(std::move(well.parts)), 0, 1);
    }
    return well;
  }
  for (RegexNode& part : well.parts) part = WithoutEmptyChoices(part);
  return well.kind == Kind::kRepeat && is_empty(well.parts[0]) ? RegexNode() : well;
}

class RegexRules {
 public:
  explicit RegexRules(const std::string& root)
      : root_(root), part_(root == "root" ? "part" : root + "-part") {}

  std::string Print(const RegexNode& node) {
    const std::string root = Expression(node);
    std::string text = root_ + " ::= " + (root.empty() ? std::string("\"\"") : root) + "\n";
    for (size_t i = 0; i < rules_.size(); ++i)
      text += fmt::format("{}-{} ::= {}\n", part_, i, rules_[i]);
    return text;
  }

 private:
  std::string Expression(const RegexNode& node) {
    switch (node.kind) {
      case Kind::kSet:
        return ClassOf(node.set);
      case Kind::kRepeat: {
        // Uses a rule of its own, because libllama multiplies the counts of nested repetitions.
        std::string part = Expression(node.parts[0]);
        if (node.parts[0].kind != Kind::kSet) {
          rules_.push_back(std::move(part));
          part = fmt::format("{}-{}", part_, rules_.size() - 1);
        }
        return part + Times(node.least, node.most);
      }
      case Kind::kSequence:
      case Kind::kChoice: {
        std::string text;
        for (const RegexNode& part : node.parts) {
          const std::string one = Expression(part);
          const bool is_choice = part.kind == Kind::kChoice;
          if (!text.empty()) text += node.kind == Kind::kChoice ? " | " : " ";
          text += is_choice ? "(" + one + ")" : one;
        }
        return text;
      }
      default:
        return "";
    }
  }

  const std::string root_;
  const std::string part_;
  std::vector<std::string> rules_;
};

std::string PatternOf(const RegexNode& node) {
  switch (node.kind) {
    case Kind::kSet:
      return ClassOf(node.set);
    case Kind::kRepeat: {
      const std::string part = PatternOf(node.parts[0]);
      const bool is_one = node.parts[0].kind == Kind::kSet;
      return (is_one ? part : "(" + part + ")") + Times(node.least, node.most);
    }
    case Kind::kSequence:
    case Kind::kChoice: {
      std::string text;
      for (const RegexNode& part : node.parts) {
        if (!text.empty() && node.kind == Kind::kChoice) text += "|";
        const bool is_character = part.kind == Kind::kSet && node.kind == Kind::kSequence &&
                                  part.set.ranges().size() == 1 &&
                                  part.set.ranges()[0].first == part.set.ranges()[0].second &&
                                  IsPlain(part.set.ranges()[0].first);
        if (is_character) {
          text += static_cast<char>(part.set.ranges()[0].first);
        } else if (part.kind == Kind::kChoice) {
          text += "(" + PatternOf(part) + ")";
        } else {
          text += PatternOf(part);
        }
      }
      return text;
    }
    default:
      return "";
  }
}

// Adds JSON's escapes of control characters, which have no other form in a string.
void AddEscapes(const CharSet& set, std::vector<RegexNode>* choices) {
  CharSet short_ones, digits[2];
  constexpr std::pair<char32_t, char> kShort[] = {
      {'"', '"'}, {'\\', '\\'}, {'\b', 'b'}, {'\f', 'f'}, {'\n', 'n'}, {'\r', 'r'}, {'\t', 't'}};
  const auto has_short = [&](char32_t c) {
    return std::ranges::any_of(kShort, [c](const auto& one) { return one.first == c; });
  };
  for (const auto& [c, letter] : kShort) {
    const auto as_char = static_cast<unsigned char>(letter);
    if (set.Contains(c)) short_ones.Add(as_char, as_char);
  }
  for (char32_t c = 0; c < 0x20; ++c) {
    if (has_short(c) || !set.Contains(c)) continue;
    const char32_t low = c % 16;
    const char32_t digit = low < 10 ? '0' + low : 'a' + low - 10;
    digits[c / 16].Add(digit, digit);
  }
  if (!short_ones.empty()) choices->push_back(Sequence({OneOf('\\'), SetNode(short_ones)}));
  for (size_t high = 0; high < 2; ++high) {
    if (digits[high].empty()) continue;
    choices->push_back(
        Sequence({LiteralNode(high == 0 ? "\\u000" : "\\u001"), SetNode(digits[high])}));
  }
}

size_t Product(size_t a, size_t b) {
  if (a == 0 || b == 0) return 0;
  return a > RegexNode::kNoLimit / b ? RegexNode::kNoLimit : a * b;
}

size_t Sum(size_t a, size_t b) { return a > RegexNode::kNoLimit - b ? RegexNode::kNoLimit : a + b; }

}  // namespace

double ExpandedNodes(const RegexNode& node) {
  double parts = 0;
  for (const RegexNode& part : node.parts) parts += ExpandedNodes(part);
  if (node.kind != Kind::kRepeat) return 1 + parts;
  // UpTo() copies its part four times, and Exactly() twice.
  const auto copies = [](size_t times) {
    double count = 1;
    for (; times > kMostTimes; times /= kMostTimes) count *= 4;
    return count;
  };
  const bool is_unlimited = node.most == RegexNode::kNoLimit;
  const bool is_whole = node.least <= kMostTimes && (is_unlimited || node.most <= kMostTimes);
  if (is_whole) return 1 + parts;
  return 1 + parts * (copies(node.least) + (is_unlimited ? 1 : copies(node.most - node.least)));
}

std::string RegexGrammar(const RegexNode& node, const std::string& root) {
  return RegexRules(root).Print(WithoutEmptyChoices(Bounded(node)));
}

std::string ConverterPattern(const RegexNode& node) {
  const RegexNode well = WithoutEmptyChoices(Bounded(node));
  const std::string pattern = PatternOf(well);
  return "^" + (well.kind == Kind::kChoice ? "(" + pattern + ")" : pattern) + "$";
}

RegexNode JsonEncoded(const RegexNode& node) {
  if (node.kind != Kind::kSet) {
    RegexNode encoded = node;
    for (RegexNode& part : encoded.parts) part = JsonEncoded(part);
    return encoded;
  }
  std::vector<RegexNode> choices;
  const CharSet plain = node.set.Intersection({{' ', '!'}, {'#', '['}, {']', 0x10FFFF}});
  if (!plain.empty()) choices.push_back(SetNode(plain));
  AddEscapes(node.set, &choices);
  return Choice(std::move(choices));
}

LengthRange LengthsOf(const RegexNode& node) {
  LengthRange range;
  switch (node.kind) {
    case Kind::kSet:
      return {1, 1};
    case Kind::kSequence:
      for (const RegexNode& part : node.parts) {
        const LengthRange one = LengthsOf(part);
        range = {Sum(range.least, one.least), Sum(range.most, one.most)};
      }
      return range;
    case Kind::kChoice:
      range = LengthsOf(node.parts[0]);
      for (const RegexNode& part : node.parts) {
        const LengthRange one = LengthsOf(part);
        range = {std::min(range.least, one.least), std::max(range.most, one.most)};
      }
      return range;
    case Kind::kRepeat: {
      const LengthRange one = LengthsOf(node.parts[0]);
      return {Product(one.least, node.least), Product(one.most, node.most)};
    }
    default:
      return range;
  }
}

std::optional<RegexNode> WithLengths(const RegexNode& node, LengthRange range) {
  const LengthRange own = LengthsOf(node);
  if (own.least >= range.least && own.most <= range.most) return node;
  if (own.least > range.most || own.most < range.least) return std::nullopt;
  RegexNode changed = node;
  if (node.kind == Kind::kRepeat) {
    const LengthRange one = LengthsOf(node.parts[0]);
    if (one.least != one.most || one.least == 0) return std::nullopt;
    const size_t least = (range.least + one.least - 1) / one.least;
    const size_t most =
        range.most == RegexNode::kNoLimit ? RegexNode::kNoLimit : range.most / one.least;
    changed.least = std::max(node.least, least);
    changed.most = std::min(node.most, most);
    if (changed.least > changed.most) return std::nullopt;
    return Repeated(changed.parts[0], changed.least, changed.most);
  }
  if (node.kind != Kind::kSequence) return std::nullopt;
  RegexNode* varies = nullptr;
  size_t fixed = 0;
  for (RegexNode& part : changed.parts) {
    const LengthRange one = LengthsOf(part);
    if (one.least == one.most) {
      fixed += one.least;
    } else if (varies != nullptr) {
      return std::nullopt;
    } else {
      varies = &part;
    }
  }
  if (varies == nullptr) return std::nullopt;
  const size_t most = range.most == RegexNode::kNoLimit ? range.most : range.most - fixed;
  if (range.most < fixed) return std::nullopt;
  const auto part = WithLengths(*varies, {range.least > fixed ? range.least - fixed : 0, most});
  if (!part.has_value()) return std::nullopt;
  *varies = *part;
  return changed;
}

}  // namespace ebb
