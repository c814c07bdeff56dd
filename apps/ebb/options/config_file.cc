#include "apps/ebb/options/config_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#define TOML_EXCEPTIONS 0
#define TOML_ENABLE_FORMATTERS 0
#include <toml++/toml.h>

namespace ebb::cli {
namespace {

// A file of all options has 30 kB. A device such as /dev/zero has no end.
constexpr size_t kMostConfigBytes = size_t{1} << 20;

int LineOf(const toml::node& node) { return static_cast<int>(node.source().begin.line); }

Status ErrorAt(const std::string& file, int line, std::string_view name, std::string_view text) {
  return InvalidArgument(
      fmt::format("{}:{}: {}{}{}", file, line, name, name.empty() ? "" : ": ", text));
}

// Returns the line with this number, from 1, without its end, for messages.
std::string_view Line(std::string_view text, toml::source_index number) {
  for (toml::source_index i = 1; i < number; ++i) {
    text.remove_prefix(std::min(text.find('\n') + 1, text.size()));
  }
  constexpr size_t kMostShown = 60;
  const std::string_view line = text.substr(0, text.find('\n'));
  return line.substr(0, std::min(line.find_last_not_of(" \t\r") + 1, kMostShown));
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
    // The system would take the part before it for a file's name.
    if (text->get().find('\0') != std::string::npos) {
      return InvalidArgument("expected a text without the character U+0000");
    }
    values->push_back({.kind = Kind::kString, .text = text->get()});
  } else if (const auto* whole = node.as_integer()) {
    values->push_back({.kind = Kind::kNumber, .text = std::to_string(whole->get())});
  } else if (const auto* number = node.as_floating_point()) {
    // 8080.0 stays a number that has a fraction, which options of whole numbers refuse.
    values->push_back({.kind = Kind::kNumber, .text = fmt::format("{:#}", number->get())});
  } else if (const auto* flag = node.as_boolean()) {
    values->push_back({.kind = Kind::kBool, .text = flag->get() ? "true" : "false"});
  } else {
    return InvalidArgument(
        fmt::format("expected a text in quotes, a number, true or false, found {}", KindOf(node)));
  }
  return OkStatus();
}

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
    EBB_RETURN_IF_ERROR(row.parse(value.text, options));
  }
  return OkStatus();
}

struct ConfigFileCloser {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

// A file that cannot be read is an error of the option that names it.
Result<std::string> ReadConfigFile(const std::string& path) {
  const auto refuse = [&](std::string_view why) {
    return InvalidArgument(fmt::format("--config: cannot read {}: {}", path, why));
  };
  const std::unique_ptr<std::FILE, ConfigFileCloser> file(std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) return refuse(std::strerror(errno));
  std::string text(kMostConfigBytes + 1, '\0');
  errno = 0;
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) return refuse(std::strerror(errno));
  if (text.size() > kMostConfigBytes) {
    return refuse(fmt::format("expected at most {} bytes, found more", kMostConfigBytes));
  }
  return text;
}

}  // namespace

Result<std::vector<ConfigSetting>> ParseConfig(std::string_view text, const std::string& file) {
  const toml::parse_result parsed = toml::parse(text, std::string_view(file));
  if (!parsed) {
    const toml::parse_error& error = parsed.error();
    const toml::source_index line = error.source().begin.line;
    return ErrorAt(file, static_cast<int>(line), "",
                   fmt::format("{}, in \"{}\"", error.description(), Line(text, line)));
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
  // The table is ordered by names.
  std::ranges::stable_sort(settings, {}, &ConfigSetting::line);
  return settings;
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
      return ErrorAt(
          file, setting.line, "",
          fmt::format("expected the long name of an option without its dashes, found \"{}\"",
                      setting.name));
    }
    // An option of the command line takes the place of all values in the file.
    CliOptions unused;
    const bool is_given = std::ranges::find(given, *row) != given.end();
    const Status status = ApplySetting(setting, **row, is_given ? &unused : options);
    if (!status.ok()) return ErrorAt(file, setting.line, setting.name, status.Text());
  }
  return OkStatus();
}

Status ApplyConfigFile(const std::string& file, const std::vector<const OptionRow*>& rows,
                       const std::vector<const OptionRow*>& given, CliOptions* options) {
  EBB_ASSIGN_OR_RETURN(const std::string text, ReadConfigFile(file));
  EBB_ASSIGN_OR_RETURN(const std::vector<ConfigSetting> settings, ParseConfig(text, file));
  return ApplyConfig(settings, file, rows, given, options);
}

}  // namespace ebb::cli
