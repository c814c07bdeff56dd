// Reads a configuration file in TOML, which sets options by their long names:
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

// ConfigValue is one value: a string with its escapes resolved, a number in decimal, or true or
// false.
struct ConfigValue {
  enum class Kind { kString, kNumber, kBool };
  Kind kind = Kind::kString;
  std::string text;

  friend bool operator==(const ConfigValue&, const ConfigValue&) = default;
};

// ConfigSetting is one line NAME = VALUE or NAME = [VALUE, ...].
struct ConfigSetting {
  std::string name;
  std::vector<ConfigValue> values;
  bool is_list = false;
  int line = 0;  // from 1
};

// Parses the settings in `text`, in the order of their lines. Errors: InvalidArgument. The message
// begins with "FILE:LINE:COLUMN: " if the text is not TOML; with "FILE:LINE: " if a name comes
// twice, a string contains the character U+0000, or the file uses parts of TOML that options do not
// need (tables, dates, nested lists).
[[nodiscard]] Result<std::vector<ConfigSetting>> ParseConfig(std::string_view text,
                                                             const std::string& file);

// Returns whether a configuration file may set the option. The file may not set --config, nor
// options that print a text and end the program, such as --list-policies.
[[nodiscard]] bool IsConfigurable(const OptionRow& row);
// Returns the option's name in a configuration file, such as "api-keys" for "--api-keys".
[[nodiscard]] std::string ConfigName(const OptionRow& row);

// CommandLine records which options the command line gave, and which shared fields they set.
struct CommandLine {
  std::vector<const OptionRow*> rows;
  GivenOptions shared;
};

// Sets the options that `settings` name, in their order. Skips options that the command line
// (`given`) has too, and options that set a shared field which an option of the command line sets.
// `rows` are the options that the command takes. Errors: InvalidArgument, beginning with
// "FILE:LINE: ": an unknown name, a value that the option does not take, or two options of the file
// that set one field.
[[nodiscard]] Status ApplyConfig(const std::vector<ConfigSetting>& settings,
                                 const std::string& file, const std::vector<const OptionRow*>& rows,
                                 const CommandLine& given, CliOptions* options);
// Reads a configuration file and applies it with ApplyConfig(). Errors: InvalidArgument: those of
// ParseConfig() and ApplyConfig(), a file that cannot be read or is not a regular file, or a file
// of more than 1 MiB.
[[nodiscard]] Status ApplyConfigFile(const std::string& file,
                                     const std::vector<const OptionRow*>& rows,
                                     const CommandLine& given, CliOptions* options);

}  // namespace ebb::cli

#endif  // EBB_APPS_OPTIONS_CONFIG_FILE_H_
