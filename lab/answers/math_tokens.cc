#include "lab/answers/math_tokens.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "lab/answers/math_names.h"
#include "lab/answers/math_rewrites.h"
#include "lab/answers/text.h"

namespace ebb {
namespace {

class Tokenizer {
 public:
  explicit Tokenizer(std::string_view text) : text_(text) {}

  std::vector<MathToken> Run() {
    while (at_ < text_.size()) Step();
    return std::move(tokens_);
  }

 private:
  using Kind = MathTokenKind;

  void Step() {
    const char c = text_[at_];
    if (IsDigit(c) || (c == '.' && at_ + 1 < text_.size() && IsDigit(text_[at_ + 1]))) {
      ReadNumber();
    } else if (IsLetter(c)) {
      ReadLetters();
    } else if (c == '\\') {
      ReadCommand();
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      ReadUnicode();
    } else {
      ReadSymbol(c);
    }
  }

  void Emit(Kind kind, std::string_view text) {
    tokens_.push_back({kind, std::string(text), text_depth_ > 0});
  }

  // The length of what separates thousands at `at`, 0 for none: "," with no space after it outside
  // brackets, where it would be a list; "\,", "\!", "{,}" and a space anywhere.
  [[nodiscard]] size_t SeparatorAt(size_t at) const {
    const std::string_view rest = text_.substr(at);
    for (const std::string_view separator : {"{,}", "\\,", "{\\,}", "\\ ", " ", "~", "\u202f"}) {
      if (rest.starts_with(separator)) return separator.size();
    }
    if (!rest.starts_with(',')) return 0;
    size_t length = 1;
    if (rest.substr(1).starts_with("\\!")) {
      length = 3;
      while (length < rest.size() && rest[length] == ' ') ++length;
    } else if (bracket_depth_ > 0) {
      return 0;
    }
    return length;
  }

  [[nodiscard]] size_t DigitsAt(size_t at) const {
    size_t end = at;
    while (end < text_.size() && IsDigit(text_[end])) ++end;
    return end - at;
  }

  void ReadNumber() {
    size_t digits = DigitsAt(at_);
    std::string number(text_.substr(at_, digits));
    at_ += digits;
    if (digits >= 1 && digits <= 3) {
      for (size_t separator; (separator = SeparatorAt(at_)) > 0; at_ += separator + 3) {
        if (DigitsAt(at_ + separator) != 3) break;
        number += text_.substr(at_ + separator, 3);
      }
    }
    ReadDecimals(&number);
    const std::string_view rest = text_.substr(at_);
    if (rest.size() >= 2 && (rest[0] == 'e' || rest[0] == 'E')) {
      const size_t sign = rest[1] == '-' || rest[1] == '+' ? 1 : 0;
      digits = DigitsAt(at_ + 1 + sign);
      if (digits > 0) {
        number += rest.substr(0, 1 + sign + digits);
        at_ += 1 + sign + digits;
      }
    }
    Emit(Kind::kNumber, number);
  }

  void ReadDecimals(std::string* number) {
    if (at_ + 1 >= text_.size() || text_[at_] != '.') return;
    const size_t digits = DigitsAt(at_ + 1);
    const auto [repeated, length] = RepetendAt(at_ + 1 + digits);
    if (digits == 0 && repeated.empty()) return;
    *number += text_.substr(at_, digits + 1);
    at_ += digits + 1 + length;
    // More than a double holds.
    const size_t wanted = number->size() + 24;
    while (!repeated.empty() && number->size() < wanted) *number += repeated;
  }

  // The digits under a bar that begins at `at`, and the length of all of it: "\overline{3}".
  [[nodiscard]] std::pair<std::string_view, size_t> RepetendAt(size_t at) const {
    for (const std::string_view bar : {"\\overline{", "\\bar{"}) {
      if (!text_.substr(std::min(at, text_.size())).starts_with(bar)) continue;
      const size_t digits = DigitsAt(at + bar.size());
      const size_t end = at + bar.size() + digits;
      if (digits > 0 && end < text_.size() && text_[end] == '}') {
        return {text_.substr(at + bar.size(), digits), end + 1 - at};
      }
    }
    return {};
  }

  // "6 PM" and "6\text{ p.m.}".
  bool TakeHalfOfDay(std::string_view word) {
    const bool after_number = !tokens_.empty() && tokens_.back().kind == Kind::kNumber;
    if (text_depth_ == 0 && !after_number) return false;
    const std::string dotted = LowerCase(text_.substr(at_, 4));
    const bool is_dotted = dotted == "a.m." || dotted == "p.m.";
    if (!is_dotted && word != "am" && word != "pm") return false;
    Emit(Kind::kWord, word[0] == 'a' ? "am" : "pm");
    at_ += is_dotted ? 4 : 2;
    return true;
  }

  void ReadLetters() {
    size_t end = at_;
    while (end < text_.size() && IsLetter(text_[end])) ++end;
    const std::string_view run = text_.substr(at_, end - at_);
    const std::string word = LowerCase(run);
    if (TakeHalfOfDay(word)) return;
    at_ = end;
    if (const MathName* name = FindWord(word)) {
      // ", and" is one comma.
      const bool repeats = !tokens_.empty() && name->text == "," && tokens_.back().Is(",");
      if (!repeats) Emit(name->kind, name->text);
    } else if (const std::string_view scale = ScaleOfWord(word);
               !scale.empty() && !tokens_.empty() && tokens_.back().kind == Kind::kNumber) {
      Emit(Kind::kSymbol, "*");
      Emit(Kind::kNumber, scale);
    } else if (run.size() == 1) {
      Emit(Kind::kName, run);
    } else if (text_depth_ > 0 || run.size() > 4 || IsUnitWord(word)) {
      Emit(Kind::kWord, word);
    } else if (run.size() > 2) {
      Emit(Kind::kLetters, run);
    } else {
      for (const char letter : run) Emit(Kind::kName, {&letter, 1});
    }
  }

  void ReadSymbol(char c) {
    ++at_;
    switch (c) {
      case '$':
      case '~':
        return;
      case '{':
        groups_.push_back(Group::kPlain);
        break;
      case '}':
        if (!groups_.empty()) {
          const Group group = groups_.back();
          groups_.pop_back();
          if (group == Group::kText) {
            --text_depth_;
            return;
          }
        }
        break;
      case '(':
      case '[':
        ++bracket_depth_;
        break;
      case ')':
      case ']':
        --bracket_depth_;
        break;
      default:
        if (std::isspace(static_cast<unsigned char>(c)) != 0) return;
    }
    constexpr std::string_view kSymbols = "+-*/^_()[]{},;=<>|!%&:'";
    Emit(kSymbols.find(c) == std::string_view::npos ? Kind::kOther : Kind::kSymbol, {&c, 1});
  }

  void ReadUnicode() {
    size_t end = at_ + 1;
    while (end < text_.size() && (static_cast<unsigned char>(text_[end]) & 0xc0) == 0x80) ++end;
    const std::string_view character = text_.substr(at_, end - at_);
    at_ = end;
    const MathName* name = FindUnicode(character);
    if (name == nullptr) {
      Emit(Kind::kOther, character);
    } else if (name->text == "^2" || name->text == "^3") {
      Emit(Kind::kSymbol, "^");
      Emit(Kind::kNumber, name->text.substr(1));
    } else if (!name->text.empty()) {
      Emit(name->kind, name->text);
    }
  }

  void ReadCommand() {
    size_t end = at_ + 1;
    while (end < text_.size() && IsLetter(text_[end])) ++end;
    if (end == at_ + 1) end = std::min(end + 1, text_.size());
    const std::string_view command = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end;
    if (command == "{" || command == "lbrace") {
      ++bracket_depth_;
      return Emit(Kind::kSymbol, "\\{");
    }
    if (command == "}" || command == "rbrace") {
      --bracket_depth_;
      return Emit(Kind::kSymbol, "\\}");
    }
    if (command == "begin" || command == "end") return ReadEnvironment(command);
    const MathName* name = FindCommand(command);
    if (name == nullptr) return Emit(Kind::kOther, command);
    if (name->text == "text") return OpenText();
    if (!name->text.empty()) Emit(name->kind, name->text);
  }

  // \text{...} is its content; braces are dropped, letters are words.
  void OpenText() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    if (at_ >= text_.size() || text_[at_] != '{') return;
    ++at_;
    groups_.push_back(Group::kText);
    ++text_depth_;
  }

  void ReadEnvironment(std::string_view command) {
    const size_t close = text_.find('}', at_);
    if (at_ >= text_.size() || text_[at_] != '{' || close == std::string_view::npos) return;
    const std::string_view name = text_.substr(at_ + 1, close - at_ - 1);
    at_ = close + 1;
    constexpr std::array<std::string_view, 5> kMatrices = {"pmatrix", "bmatrix", "matrix",
                                                           "smallmatrix", "array"};
    const bool matrix = std::find(kMatrices.begin(), kMatrices.end(), name) != kMatrices.end();
    // A determinant is no matrix: its name counts.
    if (matrix) {
      Emit(Kind::kSymbol, command);
    } else {
      Emit(Kind::kOther, std::string(command) + " " + std::string(name));
    }
    if (name != "array" || command != "begin" || at_ >= text_.size() || text_[at_] != '{') return;
    const size_t columns = text_.find('}', at_);
    if (columns != std::string_view::npos) at_ = columns + 1;
  }

  enum class Group : uint8_t { kPlain, kText };

  std::string_view text_;
  size_t at_ = 0;
  int bracket_depth_ = 0;  // of brackets that may hold a list; wrong input may make it negative
  int text_depth_ = 0;
  std::vector<Group> groups_;
  std::vector<MathToken> tokens_;
};

}  // namespace

std::vector<MathToken> TokenizeMath(std::string_view text) {
  std::vector<MathToken> tokens = Tokenizer(Trim(text)).Run();
  DropDegrees(&tokens);
  DropOrdinalEnds(&tokens);
  SplitFractionDigits(&tokens);
  NameEmptySets(&tokens);
  // The end of a sentence is no part of the answer.
  while (!tokens.empty() && (tokens.back().Is(",") || tokens.back().Is(";") ||
                             tokens.back().Is(":") || tokens.back().text == ".")) {
    tokens.pop_back();
  }
  return tokens;
}

std::string CanonicalText(MathTokens tokens) {
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i].Is("{") && i + 2 < tokens.size() && tokens[i + 2].Is("}")) {
      text += tokens[i + 1].text;
      i += 2;
    } else {
      text += tokens[i].text;
    }
    text += ' ';
  }
  return text;
}

}  // namespace ebb
