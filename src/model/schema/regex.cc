#include "src/model/schema/regex.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

#include <fmt/format.h>

#include "src/model/schema/regex_grammar.h"

namespace ebb {
namespace {

constexpr size_t kMostPatternBytes = 4096;
constexpr size_t kMostPatternDepth = 50;
constexpr double kMostExpandedNodes = 100000;
constexpr size_t kMostCount = 1'000'000'000;

const CharSet kDigits = {{'0', '9'}};
const CharSet kWordCharacters = {{'0', '9'}, {'A', 'Z'}, {'_', '_'}, {'a', 'z'}};
const CharSet kSpaces = {{'\t', '\r'},     {' ', ' '},       {0xA0, 0xA0},     {0x1680, 0x1680},
                         {0x2000, 0x200A}, {0x2028, 0x2029}, {0x202F, 0x202F}, {0x205F, 0x205F},
                         {0x3000, 0x3000}, {0xFEFF, 0xFEFF}};
const CharSet kLineEnds = {{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}};

bool IsDigit(char32_t c) { return c >= '0' && c <= '9'; }

std::optional<char32_t> HexValue(std::u32string_view digits) {
  char32_t value = 0;
  if (digits.empty() || digits.size() > 6) return std::nullopt;
  for (const char32_t c : digits) {
    char32_t digit = 0;
    if (IsDigit(c)) {
      digit = c - '0';
    } else if (c >= 'a' && c <= 'f') {
      digit = c - 'a' + 10;
    } else if (c >= 'A' && c <= 'F') {
      digit = c - 'A' + 10;
    } else {
      return std::nullopt;
    }
    value = value * 16 + digit;
  }
  return value <= 0x10FFFF ? std::optional(value) : std::nullopt;
}

// RegexParser is a recursive-descent parser. It keeps the first error and skips the rest.
class RegexParser {
 public:
  explicit RegexParser(std::u32string pattern) : text_(std::move(pattern)) {}

  Result<RegexNode> Parse() {
    RegexNode node = ParseChoice(0);
    if (error_.empty() && at_ < text_.size()) Fail("a closing bracket without an opening one");
    if (!error_.empty()) return InvalidArgument(error_);
    return node;
  }

 private:
  [[nodiscard]] bool AtEnd() const { return at_ >= text_.size(); }
  [[nodiscard]] bool Sees(std::u32string_view next) const {
    return std::u32string_view(text_).substr(at_).starts_with(next);
  }
  bool Take(std::u32string_view next) {
    if (!Sees(next)) return false;
    at_ += next.size();
    return true;
  }
  void Fail(std::string why) {
    if (error_.empty()) error_ = std::move(why);
    at_ = text_.size();
  }

  RegexNode ParseChoice(size_t depth) {
    if (depth > kMostPatternDepth) {
      Fail(fmt::format("groups within each other more than {} deep", kMostPatternDepth));
      return {};
    }
    std::vector<RegexNode> choices = {ParseSequence(depth)};
    while (Take(U"|")) choices.push_back(ParseSequence(depth));
    return choices.size() == 1 ? std::move(choices[0]) : Choice(std::move(choices));
  }

  RegexNode ParseSequence(size_t depth) {
    std::vector<RegexNode> parts;
    while (!AtEnd() && !Sees(U"|") && !Sees(U")")) {
      RegexNode part = ParseAtom(depth);
      part = ParseQuantifiers(std::move(part));
      parts.push_back(std::move(part));
    }
    return Sequence(std::move(parts));
  }

  RegexNode ParseAtom(size_t depth) {
    if (Take(U"^")) return {.kind = RegexNode::Kind::kBegin};
    if (Take(U"$")) return {.kind = RegexNode::Kind::kEnd};
    if (Take(U".")) return SetNode(kLineEnds.Complement());
    if (Take(U"(")) return ParseGroup(depth);
    if (Take(U"[")) return SetNode(ParseClass());
    if (Take(U"\\")) return ParseEscape();
    const char32_t c = text_[at_];
    if (c == '*' || c == '+' || c == '?') {
      Fail("a repetition of nothing");
      return {};
    }
    ++at_;
    return SetNode({{c, c}});
  }

  RegexNode ParseGroup(size_t depth) {
    if (Sees(U"?=") || Sees(U"?!") || Sees(U"?<=") || Sees(U"?<!")) {
      Fail("lookaround");
    } else if (Take(U"?<") || Take(U"?P<")) {
      const size_t end = text_.find('>', at_);
      if (end == std::u32string::npos) Fail("a name of a group without an end");
      if (error_.empty()) at_ = end + 1;
    } else if (!Take(U"?:") && Sees(U"?")) {
      Fail("inline flags");
    }
    RegexNode node = ParseChoice(depth + 1);
    if (!Take(U")")) Fail("an opening bracket without a closing one");
    return node;
  }

  RegexNode ParseEscape() {
    if (Take(U"A")) return {.kind = RegexNode::Kind::kBegin};
    if (Take(U"Z") || Take(U"z")) return {.kind = RegexNode::Kind::kEnd};
    if (Take(U"b") || Take(U"B")) {
      Fail("a word boundary");
      return {};
    }
    if (!AtEnd() && ((text_[at_] >= '1' && text_[at_] <= '9') || text_[at_] == 'k')) {
      Fail("a back reference");
      return {};
    }
    return SetNode(ParseSetEscape());
  }

  // Parses the text after a backslash, within classes and outside.
  CharSet ParseSetEscape() {
    if (AtEnd()) {
      Fail("a backslash at the end");
      return {};
    }
    const char32_t c = text_[at_++];
    switch (c) {
      case 'd':
        return kDigits;
      case 'D':
        return kDigits.Complement();
      case 'w':
        return kWordCharacters;
      case 'W':
        return kWordCharacters.Complement();
      case 's':
        return kSpaces;
      case 'S':
        return kSpaces.Complement();
      case 'p':
      case 'P':
        Fail("a Unicode property");
        return {};
      default:
        break;
    }
    const char32_t one = ParseCharacterEscape(c);
    return {{one, one}};
  }

  char32_t ParseCharacterEscape(char32_t c) {
    constexpr std::pair<char32_t, char32_t> kNamed[] = {{'t', '\t'}, {'n', '\n'}, {'r', '\r'},
                                                        {'f', '\f'}, {'v', '\v'}, {'0', 0}};
    for (const auto& [name, value] : kNamed) {
      if (c == name) return value;
    }
    if (c == 'x') return ParseHex(2);
    if (c == 'u' && Take(U"{")) {
      const size_t end = std::min(text_.find('}', at_), text_.size());
      const char32_t value = ParseHex(end - at_);
      if (!Take(U"}")) Fail("an escape \\u{ without an end");
      return value;
    }
    if (c == 'u') {
      const char32_t value = ParseHex(4);
      // Joins two surrogates to one character.
      if (value >= 0xD800 && value < 0xDC00 && Take(U"\\u")) {
        return 0x10000 + ((value - 0xD800) << 10) + (ParseHex(4) - 0xDC00);
      }
      return value;
    }
    const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || IsDigit(c);
    if (is_letter) Fail(fmt::format("the escape \\{}", static_cast<char>(c)));
    return c;
  }

  char32_t ParseHex(size_t size) {
    const auto value =
        HexValue(std::u32string_view(text_).substr(std::min(at_, text_.size()), size));
    if (!value.has_value() || at_ + size > text_.size()) {
      Fail("an escape with hexadecimal digits that has none");
      return 0;
    }
    at_ += size;
    return *value;
  }

  CharSet ParseClass() {
    const bool is_negated = Take(U"^");
    CharSet set;
    bool closed = false;
    while (!AtEnd() && !(closed = Take(U"]"))) {
      const CharSet first = ParseClassItem();
      const bool is_range = Sees(U"-") && at_ + 1 < text_.size() && text_[at_ + 1] != ']';
      if (!is_range) {
        set.Add(first);
        continue;
      }
      ++at_;
      const CharSet last = ParseClassItem();
      if (!error_.empty()) return {};
      const char32_t low = first.ranges().front().first, high = last.ranges().front().first;
      const auto is_one = [](const CharSet& one) {
        return one.ranges().size() == 1 && one.ranges()[0].first == one.ranges()[0].second;
      };
      if (!is_one(first) || !is_one(last) || low > high) {
        Fail("a range of a class whose ends are in the wrong order or are classes");
        return {};
      }
      set.Add(low, high);
    }
    if (!closed) Fail("a class without an end");
    set = is_negated ? set.Complement() : set.Intersection(CharSet().Complement());
    if (set.empty()) Fail("a class without characters");
    return set;
  }

  CharSet ParseClassItem() {
    if (Take(U"\\b")) return {{'\b', '\b'}};
    if (Take(U"\\")) return ParseSetEscape();
    if (AtEnd()) return {{0, 0}};
    const char32_t c = text_[at_++];
    return {{c, c}};
  }

  std::optional<size_t> ParseCount() {
    size_t value = 0;
    const size_t begin = at_;
    while (!AtEnd() && IsDigit(text_[at_])) {
      value = std::min(value * 10 + (text_[at_++] - '0'), kMostCount);
    }
    return at_ == begin ? std::nullopt : std::optional(value);
  }

  // Parses a repetition such as "{2,5}". Returns false if the text is no repetition; the brace is
  // then a character.
  bool ParseBraces(size_t* least, size_t* most) {
    const size_t begin = at_;
    if (!Take(U"{")) return false;
    const auto from = ParseCount();
    const bool has_comma = Take(U",");
    const auto to = has_comma ? ParseCount() : from;
    if ((from.has_value() || to.has_value()) && Take(U"}")) {
      *least = from.value_or(0);
      *most = to.value_or(RegexNode::kNoLimit);
      return true;
    }
    at_ = begin;
    return false;
  }

  RegexNode ParseQuantifiers(RegexNode node) {
    size_t least = 0, most = RegexNode::kNoLimit;
    if (Take(U"*")) {
    } else if (Take(U"+")) {
      least = 1;
    } else if (Take(U"?")) {
      most = 1;
    } else if (!ParseBraces(&least, &most)) {
      return node;
    }
    if (node.kind == RegexNode::Kind::kBegin || node.kind == RegexNode::Kind::kEnd) {
      Fail("a repetition of an anchor");
    }
    if (least > most) Fail("a repetition whose largest number is below its smallest");
    (void)Take(U"?");  // how much it takes does not change what matches
    if (Sees(U"+")) Fail("a possessive repetition");
    if (Sees(U"*") || Sees(U"?") || Sees(U"{")) Fail("a repetition of a repetition");
    return Repeated(std::move(node), least, most);
  }

  const std::u32string text_;
  size_t at_ = 0;
  std::string error_;
};

bool HasAnchor(const RegexNode& node) {
  if (node.kind == RegexNode::Kind::kBegin || node.kind == RegexNode::Kind::kEnd) return true;
  return std::ranges::any_of(node.parts, HasAnchor);
}

// Edge puts `filler` at each edge of an expression that has no anchor.
class Edge {
 public:
  Edge(RegexNode::Kind anchor, RegexNode filler) : anchor_(anchor), filler_(std::move(filler)) {}

  void Fill(RegexNode* node) const {
    if (node->kind == RegexNode::Kind::kChoice && HasAnchor(*node)) {
      for (RegexNode& part : node->parts) Fill(&part);
      return;
    }
    if (node->kind != RegexNode::Kind::kSequence) {
      RegexNode whole;
      whole.parts.push_back(std::move(*node));
      *node = std::move(whole);
    }
    std::vector<RegexNode>& parts = node->parts;
    const bool is_begin = anchor_ == RegexNode::Kind::kBegin;
    const auto edge = [&] { return is_begin ? parts.begin() : parts.end() - 1; };
    if (!parts.empty() && edge()->kind == anchor_) {
      while (!parts.empty() && edge()->kind == anchor_) parts.erase(edge());
      return;
    }
    const bool goes_in =
        !parts.empty() && HasAnchor(*edge()) &&
        (edge()->kind == RegexNode::Kind::kChoice || edge()->kind == RegexNode::Kind::kSequence);
    if (goes_in) return Fill(&*edge());
    parts.insert(is_begin ? parts.begin() : parts.end(), filler_);
  }

 private:
  RegexNode::Kind anchor_;
  RegexNode filler_;
};

}  // namespace

RegexNode SetNode(CharSet set) { return {.kind = RegexNode::Kind::kSet, .set = std::move(set)}; }

RegexNode Sequence(std::vector<RegexNode> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  return {.kind = RegexNode::Kind::kSequence, .parts = std::move(parts)};
}

RegexNode Choice(std::vector<RegexNode> parts) {
  if (parts.size() == 1) return std::move(parts[0]);
  return {.kind = RegexNode::Kind::kChoice, .parts = std::move(parts)};
}

RegexNode Repeated(RegexNode part, size_t least, size_t most) {
  if (most == 0) return {};
  if (least == 1 && most == 1) return part;
  return {
      .kind = RegexNode::Kind::kRepeat, .parts = {std::move(part)}, .least = least, .most = most};
}

Result<RegexNode> ParseRegex(std::string_view pattern, RegexMatch match) {
  if (pattern.size() > kMostPatternBytes) {
    return InvalidArgument(fmt::format("a pattern of more than {} bytes", kMostPatternBytes));
  }
  EBB_ASSIGN_OR_RETURN(RegexNode node, RegexParser(CodePoints(pattern)).Parse());
  const RegexNode filler = match == RegexMatch::kWhole
                               ? RegexNode()
                               : Repeated(SetNode(CharSet().Complement()), 0, RegexNode::kNoLimit);
  Edge(RegexNode::Kind::kBegin, filler).Fill(&node);
  Edge(RegexNode::Kind::kEnd, filler).Fill(&node);
  if (HasAnchor(node)) return InvalidArgument("an anchor inside of the pattern");
  if (ExpandedNodes(node) > kMostExpandedNodes) {
    return InvalidArgument("counts within each other that come to too much");
  }
  return node;
}

}  // namespace ebb
