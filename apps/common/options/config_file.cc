#include "apps/common/options/config_file.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/common/options/whole_file.h"
#include "src/base/text/near_names.h"
#include "src/base/text/utf8.h"

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace ebb::cli {
namespace {

// kMostConfigBytes leaves ample room: an example file with all options has 30 kB.
constexpr size_t kMostConfigBytes = size_t{1} << 20;

int LineOf(const toml::node& node) { return static_cast<int>(node.source().begin.line); }

Status ErrorAt(const std::string& file, int line, std::string_view name, std::string_view text) {
  return InvalidArgument(
      fmt::format("{}:{}: {}{}{}", file, line, name, name.empty() ? "" : ": ", text));
}

// Returns the number of bytes before the column, which counts characters from 1.
size_t OffsetOf(std::string_view line, toml::source_index column) {
  size_t at = 0;
  for (toml::source_index i = 1; i < column && at < line.size(); ++i) {
    do {
      ++at;
    } while (at < line.size() && ContinuesUtf8(line[at]));
  }
  return at;
}

// Returns the text in quotes, cut after about 50 bytes so that a message stays short.
std::string Quoted(std::string_view text) {
  constexpr size_t kMostShown = 50;
  size_t end = std::min(kMostShown, text.size());
  while (end < text.size() && end > 0 && ContinuesUtf8(text[end])) --end;
  return fmt::format("\"{}{}\"", text.substr(0, end), end < text.size() ? "..." : "");
}

// Returns the text around a place, on one line and in quotes, for messages. Shows only a part of
// the line, which may be long and hold a password.
std::string Excerpt(std::string_view text, toml::source_position at) {
  for (toml::source_index i = 1; i < at.line; ++i) {
    text.remove_prefix(std::min(text.find('\n') + 1, text.size()));
  }
  constexpr size_t kMostBefore = 30;
  std::string_view line = text.substr(0, text.find('\n'));
  line = line.substr(0, line.find_last_not_of(" \t\r") + 1);
  const size_t place = OffsetOf(line, at.column);
  size_t begin = place > kMostBefore ? place - kMostBefore : 0;
  while (begin < line.size() && ContinuesUtf8(line[begin])) ++begin;
  return begin > 0 ? "..." + Quoted(line.substr(begin)) : Quoted(line);
}

std::string_view KindOf(const toml::node& node) {
  switch (node.type()) {
    case toml::node_type::table:
      return "a table";
    case toml::node_type::array:
      return "a list";
    case toml::node_type::date:
    case toml::node_type::time:
    case toml::node_type::date_time:
      return "a date or a time";
    default:
      return "another kind";
  }
}

Status ReadConfigValue(const toml::node& node, std::vector<ConfigValue>* values) {
  using Kind = ConfigValue::Kind;
  if (const auto* text = node.as_string()) {
    // The system would take the part before the character U+0000 for a file's name.
    if (text->get().find('\0') != std::string::npos) {
      return InvalidArgument("expected a text without the character U+0000");
    }
    values->push_back({.kind = Kind::kString, .text = text->get()});
  } else if (const auto* whole = node.as_integer()) {
    values->push_back({.kind = Kind::kNumber, .text = std::to_string(whole->get())});
  } else if (const auto* number = node.as_floating_point()) {
    // "{:#}" keeps 8080.0 a number with a fraction, which options of whole numbers refuse.
    values->push_back({.kind = Kind::kNumber, .text = fmt::format("{:#}", number->get())});
  } else if (const auto* flag = node.as_boolean()) {
    values->push_back({.kind = Kind::kBool, .text = flag->get() ? "true" : "false"});
  } else {
    return InvalidArgument(
        fmt::format("expected a text in quotes, a number, true or false, found {}", KindOf(node)));
  }
  return OkStatus();
}

std::string FoundText(const ConfigValue& value) {
  switch (value.kind) {
    case ConfigValue::Kind::kString:
      return fmt::format("the string {}", Quoted(value.text));
    case ConfigValue::Kind::kNumber:
      return "the number " + value.text;
    case ConfigValue::Kind::kBool:
      return "the boolean " + value.text;
  }
  return value.text;
}

// Sets one option from all values of its setting. Errors do not name the line; the caller adds it.
Status ApplySetting(const ConfigSetting& setting, const OptionRow& row, CliOptions* options) {
  const bool is_flag = row.value.empty();
  if (setting.is_list && !row.is_repeatable) {
    return InvalidArgument("expected one value, found a list");
  }
  for (const ConfigValue& value : setting.values) {
    const bool is_bool = value.kind == ConfigValue::Kind::kBool;
    if (is_flag && !is_bool) {
      return InvalidArgument(
          fmt::format("expected the boolean true or false, found {}", FoundText(value)));
    }
    if (!is_flag && is_bool) {
      return InvalidArgument(fmt::format("expected {}, found {}", row.value, FoundText(value)));
    }
    if (is_flag && value.text == "false") continue;
    EBB_RETURN_IF_ERROR(SetOption(row, value.text, options));
  }
  return OkStatus();
}

}  // namespace

Result<std::vector<ConfigSetting>> ParseConfig(std::string_view text, const std::string& file) {
  const toml::parse_result parsed = toml::parse(text, std::string_view(file));
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    const toml::source_position at = error.source().begin;
    return InvalidArgument(fmt::format("{}:{}:{}: {}, in {}", file, at.line, at.column,
                                       error.description(), Excerpt(text, at)));
  }
  std::vector<ConfigSetting> settings;
  for (const auto& [key, node] : parsed.table()) {
    ConfigSetting setting = {.name = std::string(key.str()),
                             .values = {},
                             .is_list = node.is_array(),
                             .line = LineOf(node)};
    Status status;
    if (const toml::array* list = node.as_array()) {
      for (const toml::node& one : *list) {
        status = ReadConfigValue(one, &setting.values);
        if (!status.ok()) return ErrorAt(file, LineOf(one), setting.name, status.message());
      }
    } else if (status = ReadConfigValue(node, &setting.values); !status.ok()) {
      return ErrorAt(file, setting.line, setting.name, status.message());
    }
    settings.push_back(std::move(setting));
  }
  // toml++ orders its table by names, but settings apply in the order of their lines.
  std::ranges::stable_sort(settings, {}, &ConfigSetting::line);
  return settings;
}

bool IsConfigurable(const OptionRow& row) {
  constexpr std::array<std::string_view, 3> kOthers = {"config", "new-key", "list-policies"};
  return row.names.starts_with('-') && std::ranges::count(kOthers, ConfigName(row)) == 0;
}

std::string ConfigName(const OptionRow& row) { return row.names.substr(row.names.rfind("--") + 2); }

namespace {

// Returns the reason why the file may not set an option of this name, with the nearest name that it
// may set.
std::string UnknownName(const std::string& name, const std::vector<const OptionRow*>& rows) {
  std::vector<std::string> names;
  for (const OptionRow* row : rows) {
    if (IsConfigurable(*row)) {
      names.push_back(ConfigName(*row));
    } else if (row->names.starts_with('-') && ConfigName(*row) == name) {
      return fmt::format("{} is an option of the command line alone", name);
    }
  }
  std::string text =
      fmt::format("expected the long name of an option without its dashes, found {}", Quoted(name));
  const std::vector<std::string> nearest = NearNames(name, std::move(names), 1);
  return nearest.empty() ? text : fmt::format("{}; the nearest is \"{}\"", text, nearest.front());
}

}  // namespace

Status ApplyConfig(const std::vector<ConfigSetting>& settings, const std::string& file,
                   const std::vector<const OptionRow*>& rows, const CommandLine& given,
                   CliOptions* options) {
  GivenOptions in_file;
  for (const ConfigSetting& setting : settings) {
    const auto row = std::ranges::find_if(rows, [&](const OptionRow* one) {
      return IsConfigurable(*one) && ConfigName(*one) == setting.name;
    });
    if (row == rows.end()) {
      return ErrorAt(file, setting.line, "", UnknownName(setting.name, rows));
    }
    // An option of the command line replaces all options of the file that set the same fields;
    // these are parsed into `replaced`, so that their errors are still reported.
    CliOptions replaced;
    bool is_given = std::ranges::count(given.rows, *row) > 0;
    Status status;
    for (const ConfigValue& value : setting.values) {
      if (status.ok()) status = in_file.Add(LongName(**row), value.text);
      is_given = is_given || given.shared.Sets(FieldsSet(LongName(**row), value.text));
    }
    if (status.ok()) status = ApplySetting(setting, **row, is_given ? &replaced : options);
    if (!status.ok()) return ErrorAt(file, setting.line, setting.name, status.Text());
  }
  return OkStatus();
}

Status ApplyConfigFile(const std::string& file, const std::vector<const OptionRow*>& rows,
                       const CommandLine& given, CliOptions* options) {
  const Result<std::string> text = ReadWholeFile(file, kMostConfigBytes);
  if (!text.ok()) return InvalidArgument("--config: " + text.status().message());
  EBB_ASSIGN_OR_RETURN(const std::vector<ConfigSetting> settings, ParseConfig(*text, file));
  return ApplyConfig(settings, file, rows, given, options);
}

}  // namespace ebb::cli
