#include "src/eval/answers/math_tokens.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "src/eval/answers/math_names.h"
#include "src/eval/answers/text.h"

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
    if (at_ + 1 < text_.size() && text_[at_] == '.' && IsDigit(text_[at_ + 1])) {
      digits = DigitsAt(at_ + 1);
      number += text_.substr(at_, digits + 1);
      at_ += digits + 1;
    }
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

  void ReadLetters() {
    size_t end = at_;
    while (end < text_.size() && IsLetter(text_[end])) ++end;
    const std::string_view run = text_.substr(at_, end - at_);
    at_ = end;
    const std::string word = LowerCase(run);
    if (const MathName* name = FindWord(word)) {
      Emit(name->kind, name->text);
    } else if (run.size() == 1) {
      Emit(Kind::kName, run);
    } else if (text_depth_ > 0 || run.size() > 4 || IsUnitWord(word)) {
      Emit(Kind::kWord, word);
    } else if (run.size() > 2) {
      // A word, or a product of variables: the same on both sides either way.
      Emit(Kind::kName, word);
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
    Emit(matrix ? Kind::kSymbol : Kind::kOther, command);
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

// Degrees change nothing: ^\circ, ^{\circ}, °.
void DropDegrees(std::vector<MathToken>* tokens) {
  std::vector<MathToken> kept;
  kept.reserve(tokens->size());
  for (size_t i = 0; i < tokens->size(); ++i) {
    if (!(*tokens)[i].Is("degree")) {
      kept.push_back(std::move((*tokens)[i]));
      continue;
    }
    if (!kept.empty() && kept.back().Is("{") && i + 1 < tokens->size() &&
        (*tokens)[i + 1].Is("}")) {
      kept.pop_back();
      ++i;
    }
    if (!kept.empty() && kept.back().Is("^")) kept.pop_back();
  }
  *tokens = std::move(kept);
}

// \frac12 and \frac1{10}: an argument without braces is one digit.
void SplitFractionDigits(std::vector<MathToken>* tokens) {
  for (size_t i = 0; i + 1 < tokens->size(); ++i) {
    const MathToken number = (*tokens)[i + 1];
    if ((*tokens)[i].kind != MathTokenKind::kFunction || (*tokens)[i].text != "frac" ||
        number.kind != MathTokenKind::kNumber || number.text.size() < 2 ||
        !std::all_of(number.text.begin(), number.text.end(), IsDigit)) {
      continue;
    }
    (*tokens)[i + 1].text = number.text.substr(0, 1);
    const auto place = tokens->begin() + static_cast<ptrdiff_t>(i) + 2;
    MathToken second = {MathTokenKind::kNumber, number.text.substr(1, 1), number.in_text};
    if (number.text.size() == 2) {
      tokens->insert(place, std::move(second));
    } else {
      MathToken rest = {MathTokenKind::kNumber, number.text.substr(2), number.in_text};
      tokens->insert(place, {std::move(second), std::move(rest)});
    }
  }
}

}  // namespace

std::vector<MathToken> TokenizeMath(std::string_view text) {
  std::vector<MathToken> tokens = Tokenizer(Trim(text)).Run();
  DropDegrees(&tokens);
  SplitFractionDigits(&tokens);
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
