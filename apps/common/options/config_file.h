// A configuration file in TOML, which toml++ reads: options by their long names.
//
//   port = 8080
//   alias = ["gpt-4o", "local"]   # an option that may be repeated
//   any-model = true              # a flag
#ifndef EBB_APPS_OPTIONS_CONFIG_FILE_H_
#define EBB_APPS_OPTIONS_CONFIG_FILE_H_

#include <string>
#include <string_view>
#include <vector>

#include "apps/common/options/options.h"
#include "ebb/status.h"

namespace ebb::cli {

// One value: a string, its escapes resolved; a number in decimal; or true or false.
struct ConfigValue {
  enum class Kind { kString, kNumber, kBool };
  Kind kind = Kind::kString;
  std::string text;

  friend bool operator==(const ConfigValue&, const ConfigValue&) = default;
};

// One line NAME = VALUE or NAME = [VALUE, ...].
struct ConfigSetting {
  std::string name;
  std::vector<ConfigValue> values;
  bool is_list = false;
  int line = 0;  // from 1
};

// Reads settings from `text`, in the order of their lines. Errors: InvalidArgument, which begins
// with "FILE:LINE:COLUMN: " for text that is no TOML, else with "FILE:LINE: ": a name that comes
// twice, or parts of TOML that options do not need (tables, dates, lists in lists), or the
// character U+0000 in a text.
[[nodiscard]] Result<std::vector<ConfigSetting>> ParseConfig(std::string_view text,
                                                             const std::string& file);

// Returns whether a configuration file may set the option: not those that end the program with a
// text, and not --config.
[[nodiscard]] bool IsConfigurable(const OptionRow& row);
// The name of an option in a configuration file: "api-keys" of "--api-keys".
[[nodiscard]] std::string ConfigName(const OptionRow& row);

// The options of the command line.
struct CommandLine {
  std::vector<const OptionRow*> rows;
  GivenOptions shared;
};

// Sets the options that `settings` name, in their order, except those that `given` has and those
// that set a field which an option of `given` sets. rows: the options that the command takes.
// Errors: InvalidArgument, which begins with "FILE:LINE: ": an unknown name, a value that the
// option does not take, or two options of the file that set one field.
[[nodiscard]] Status ApplyConfig(const std::vector<ConfigSetting>& settings,
                                 const std::string& file, const std::vector<const OptionRow*>& rows,
                                 const CommandLine& given, CliOptions* options);
// Reads a file, and applies it. Errors: InvalidArgument: those above, a file that cannot be read or
// is no regular file, or one of more than 1 MiB.
[[nodiscard]] Status ApplyConfigFile(const std::string& file,
                                     const std::vector<const OptionRow*>& rows,
                                     const CommandLine& given, CliOptions* options);

}  // namespace ebb::cli

#endif  // EBB_APPS_OPTIONS_CONFIG_FILE_H_
