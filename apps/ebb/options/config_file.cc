#include "apps/ebb/options/config_file.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace ebb::cli {
namespace {

void AppendUtf8(uint32_t code, std::string* text) {
  const auto append = [text](uint32_t byte) { text->push_back(static_cast<char>(byte)); };
  if (code < 0x80) return append(code);
  if (code < 0x800) {
    append(0xC0 | code >> 6);
  } else if (code < 0x10000) {
    append(0xE0 | code >> 12);
    append(0x80 | (code >> 6 & 0x3F));
  } else {
    append(0xF0 | code >> 18);
    append(0x80 | (code >> 12 & 0x3F));
    append(0x80 | (code >> 6 & 0x3F));
  }
  append(0x80 | (code & 0x3F));
}

bool IsNameCharacter(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '-' || c == '_';
}

class ConfigReader {
 public:
  ConfigReader(std::string_view text, const std::string& file) : text_(text), file_(file) {}

  Result<std::vector<ConfigSetting>> Read() {
    std::vector<ConfigSetting> settings;
    for (SkipLines(); !at_end(); SkipLines()) {
      EBB_ASSIGN_OR_RETURN(ConfigSetting setting, ReadSetting());
      const auto same = std::ranges::find(settings, setting.name, &ConfigSetting::name);
      if (same != settings.end()) {
        return ErrorAt(setting.line, fmt::format("{} is set twice, in line {} and here",
                                                 setting.name, same->line));
      }
      settings.push_back(std::move(setting));
    }
    return settings;
  }

 private:
  [[nodiscard]] bool at_end() const { return at_ >= text_.size(); }
  [[nodiscard]] char next() const { return at_end() ? '\n' : text_[at_]; }
  void Advance() { line_ += text_[at_++] == '\n' ? 1 : 0; }

  [[nodiscard]] Status ErrorAt(int line, const std::string& message) const {
    return InvalidArgument(fmt::format("{}:{}: {}", file_, line, message));
  }
  // "expected WHAT, found ...", with the rest of the line.
  [[nodiscard]] Status Expected(std::string_view what) const {
    const std::string_view rest = text_.substr(at_, text_.find('\n', at_) - at_);
    const std::string found =
        rest.empty() || rest == "\r" ? "the end of the line" : fmt::format("\"{}\"", rest);
    return ErrorAt(line_, fmt::format("expected {}, found {}", what, found));
  }

  void SkipBlanks() {
    while (!at_end() && (next() == ' ' || next() == '\t' || next() == '\r')) Advance();
  }
  // Blanks, line ends and comments.
  void SkipLines() {
    for (SkipBlanks(); !at_end() && (next() == '\n' || next() == '#'); SkipBlanks()) {
      if (next() == '#') SkipComment();
      if (!at_end()) Advance();
    }
  }
  void SkipComment() {
    while (!at_end() && next() != '\n') Advance();
  }

  Result<ConfigSetting> ReadSetting() {
    ConfigSetting setting = {.name = {}, .values = {}, .is_list = false, .line = line_};
    while (!at_end() && IsNameCharacter(next())) {
      setting.name += next();
      Advance();
    }
    if (setting.name.empty()) return Expected("the name of an option");
    SkipBlanks();
    if (next() != '=') return Expected("=");
    Advance();
    SkipBlanks();
    setting.is_list = next() == '[';
    if (setting.is_list) {
      EBB_RETURN_IF_ERROR(ReadList(&setting.values));
    } else {
      EBB_ASSIGN_OR_RETURN(setting.values.emplace_back(), ReadConfigValue());
    }
    SkipBlanks();
    if (next() == '#') SkipComment();
    if (next() != '\n') return Expected("the end of the line");
    return setting;
  }

  Status ReadList(std::vector<ConfigValue>* values) {
    Advance();
    for (SkipLines(); next() != ']' || at_end(); SkipLines()) {
      EBB_ASSIGN_OR_RETURN(values->emplace_back(), ReadConfigValue());
      SkipLines();
      if (next() == ',' && !at_end()) {
        Advance();
      } else if (next() != ']') {
        return Expected(", or ]");
      }
    }
    Advance();
    return OkStatus();
  }

  Result<ConfigValue> ReadConfigValue() {
    if (next() == '"') return ReadQuoted();
    if (next() == '\'') return ReadLiteral();
    std::string word;
    while (!at_end() && (IsNameCharacter(next()) || next() == '+' || next() == '.')) {
      word += next();
      Advance();
    }
    using Kind = ConfigValue::Kind;
    if (word == "true" || word == "false") return ConfigValue{.kind = Kind::kBool, .text = word};
    const bool is_number =
        !word.empty() && (std::isdigit(static_cast<unsigned char>(word.front())) != 0 ||
                          word.front() == '-' || word.front() == '+');
    if (!is_number) {
      at_ -= word.size();
      return Expected("a text in quotes, a number, true or false");
    }
    std::erase(word, '_');
    if (word.front() == '+') word.erase(0, 1);
    return ConfigValue{.kind = Kind::kNumber, .text = word};
  }

  Result<ConfigValue> ReadLiteral() {
    const size_t begin = at_ + 1;
    const size_t end = text_.find_first_of("'\n", begin);
    if (end == std::string_view::npos || text_[end] == '\n') return Expected("a text in quotes");
    at_ = end + 1;
    return ConfigValue{.text = std::string(text_.substr(begin, end - begin))};
  }

  Result<ConfigValue> ReadQuoted() {
    const size_t begin = at_;
    std::string text;
    for (Advance(); !at_end() && next() != '"' && next() != '\n';) {
      if (next() == '\\') {
        EBB_RETURN_IF_ERROR(ReadEscape(&text));
        continue;
      }
      text += next();
      Advance();
    }
    if (next() != '"') {
      at_ = begin;
      return Expected("a text in quotes");
    }
    Advance();
    return ConfigValue{.text = std::move(text)};
  }

  Status ReadEscape(std::string* text) {
    constexpr std::array<std::pair<char, char>, 7> kEscapes = {{{'b', '\b'},
                                                                {'t', '\t'},
                                                                {'n', '\n'},
                                                                {'f', '\f'},
                                                                {'r', '\r'},
                                                                {'"', '"'},
                                                                {'\\', '\\'}}};
    const char kind = at_ + 1 < text_.size() ? text_[at_ + 1] : '\n';
    const auto* const found = std::ranges::find(kEscapes, kind, &std::pair<char, char>::first);
    if (found != kEscapes.end()) {
      text->push_back(found->second);
      at_ += 2;
      return OkStatus();
    }
    const size_t num_digits = kind == 'u' ? 4 : kind == 'U' ? 8 : 0;
    const std::string digits(text_.substr(std::min(at_ + 2, text_.size()), num_digits));
    const bool are_digits = std::ranges::all_of(
        digits, [](char c) { return std::isxdigit(static_cast<unsigned char>(c)) != 0; });
    if (num_digits == 0 || digits.size() != num_digits || !are_digits) {
      return Expected("an escape: \\b \\t \\n \\f \\r \\\" \\\\ \\uXXXX or \\UXXXXXXXX");
    }
    const auto code = static_cast<uint32_t>(std::stoul(digits, nullptr, 16));
    if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      return Expected("an escape of a Unicode character");
    }
    AppendUtf8(code, text);
    at_ += 2 + num_digits;
    return OkStatus();
  }

  const std::string_view text_;
  const std::string& file_;
  size_t at_ = 0;
  int line_ = 1;
};

// Sets one option from all values of its setting. Errors: without the place.
Status ApplySetting(const ConfigSetting& setting, const OptionRow& row, CliOptions* options) {
  const bool is_flag = row.value.empty();
  if (setting.is_list && !row.is_repeatable) {
    return InvalidArgument("expected one value, found a list");
  }
  for (const ConfigValue& value : setting.values) {
    const bool is_bool = value.kind == ConfigValue::Kind::kBool;
    if (is_flag && !is_bool) {
      return InvalidArgument(fmt::format("expected true or false, found {}", value.text));
    }
    if (!is_flag && is_bool) {
      return InvalidArgument(fmt::format("expected {}, found {}", row.value, value.text));
    }
    if (is_flag && value.text == "false") continue;
    EBB_RETURN_IF_ERROR(row.parse(is_flag ? "" : value.text, options));
  }
  return OkStatus();
}

}  // namespace

Result<std::vector<ConfigSetting>> ParseConfig(std::string_view text, const std::string& file) {
  return ConfigReader(text, file).Read();
}

bool IsConfigurable(const OptionRow& row) {
  constexpr std::array<std::string_view, 3> kOthers = {"config", "new-key", "list-policies"};
  return row.names.starts_with('-') && std::ranges::count(kOthers, ConfigName(row)) == 0;
}

std::string ConfigName(const OptionRow& row) { return row.names.substr(row.names.rfind("--") + 2); }

Status ApplyConfig(const std::vector<ConfigSetting>& settings, const std::string& file,
                   const std::vector<const OptionRow*>& rows,
                   const std::vector<const OptionRow*>& given, CliOptions* options) {
  for (const ConfigSetting& setting : settings) {
    const auto row = std::ranges::find_if(rows, [&](const OptionRow* one) {
      return IsConfigurable(*one) && ConfigName(*one) == setting.name;
    });
    if (row == rows.end()) {
      return InvalidArgument(
          fmt::format("{}:{}: expected the long name of an option without its dashes, found \"{}\"",
                      file, setting.line, setting.name));
    }
    // An option of the command line takes the place of all values in the file.
    CliOptions unused;
    const bool is_given = std::ranges::find(given, *row) != given.end();
    const Status status = ApplySetting(setting, **row, is_given ? &unused : options);
    if (!status.ok()) {
      return InvalidArgument(
          fmt::format("{}:{}: {}: {}", file, setting.line, setting.name, status.Text()));
    }
  }
  return OkStatus();
}

Status ApplyConfigFile(const std::string& file, const std::vector<const OptionRow*>& rows,
                       const std::vector<const OptionRow*>& given, CliOptions* options) {
  std::ifstream stream(file, std::ios::binary);
  std::ostringstream content;
  content << stream.rdbuf();
  // An empty file leaves `content`, not `stream`, in an error state; so does a folder.
  std::error_code error;
  if (!stream || std::filesystem::is_directory(file, error))
    return IoError(fmt::format("--config: cannot read {}", file));
  const std::string text = std::move(content).str();
  EBB_ASSIGN_OR_RETURN(const std::vector<ConfigSetting> settings, ParseConfig(text, file));
  return ApplyConfig(settings, file, rows, given, options);
}

}  // namespace ebb::cli
