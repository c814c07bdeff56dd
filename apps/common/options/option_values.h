// Makes rows of the option table out of the members that they set, so that parsing, the list of
// valid values and the default that help shows cannot disagree.
#ifndef EBB_APPS_OPTIONS_OPTION_VALUES_H_
#define EBB_APPS_OPTIONS_OPTION_VALUES_H_

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "apps/common/options/options.h"
#include "ebb/status.h"

namespace ebb::cli {

// Returns the parts of `text` between the separators, empty ones too.
[[nodiscard]] std::vector<std::string_view> Split(std::string_view text, char separator);

// Range holds the bounds of a number, both included.
struct Range {
  double min = std::numeric_limits<int>::min();
  double max = std::numeric_limits<int>::max();
};

// Parses all of `text` into *value. Errors: InvalidArgument, which says what was expected and what
// was found.
[[nodiscard]] Status ParseValue(std::string_view text, Range range, int* value);
[[nodiscard]] Status ParseValue(std::string_view text, Range range, float* value);
[[nodiscard]] Status ParseValue(std::string_view text, Range range, double* value);
[[nodiscard]] Status ParseValue(std::string_view text, Range range, uint64_t* value);
[[nodiscard]] Status ParseValue(std::string_view text, Range range, std::optional<int>* value);
[[nodiscard]] Status ParseValue(std::string_view text, Range range, std::string* value);
[[nodiscard]] Status ParseValue(std::string_view text, Range range,
                                std::optional<std::string>* value);
// Appends `text` to *value, for options that may be repeated.
[[nodiscard]] Status ParseValue(std::string_view text, Range range,
                                std::vector<std::string>* value);
// Parses a list such as "512,2048,8000" and replaces *value by it.
[[nodiscard]] Status ParseValue(std::string_view text, Range range, std::vector<int>* value);

// Returns a default value as help shows it; empty if help shows none.
[[nodiscard]] std::string ShowValue(int value);
[[nodiscard]] std::string ShowValue(double value);
[[nodiscard]] std::string ShowValue(uint64_t value);
[[nodiscard]] std::string ShowValue(const std::optional<int>& value);
[[nodiscard]] std::string ShowValue(const std::string& value);
[[nodiscard]] std::string ShowValue(const std::optional<std::string>& value);
[[nodiscard]] std::string ShowValue(const std::vector<std::string>& value);
[[nodiscard]] std::string ShowValue(const std::vector<int>& value);

// Returns the OptionRow of an option with a value. `access` takes CliOptions& and returns a pointer
// to the member that the option sets.
template <typename Access>
OptionRow ValueRow(OptionGroup group, std::string names, std::string value, std::string help,
                   Access access, Range range = {}) {
  return {group,
          std::move(names),
          std::move(value),
          std::move(help),
          [=](std::string_view text, CliOptions* options) {
            return ParseValue(text, range, access(*options));
          },
          [=](CliOptions options) { return ShowValue(*access(options)); },
          std::is_same_v<decltype(access(std::declval<CliOptions&>())), std::vector<std::string>*>};
}

// Returns the OptionRow of an option whose value is a name. Its `parse` rejects an empty value,
// which an unset shell variable would leave.
template <typename Access>
OptionRow NameRow(OptionGroup group, std::string names, std::string value, std::string help,
                  Access access) {
  OptionRow row = ValueRow(group, std::move(names), std::move(value), std::move(help), access);
  row.parse = [parse = std::move(row.parse), what = row.value](std::string_view text,
                                                               CliOptions* options) {
    if (!text.empty()) return parse(text, options);
    return InvalidArgument("expected " + what + ", found an empty name");
  };
  return row;
}

template <typename T>
struct Choice {
  std::string_view name;
  T value;
};

// Returns the OptionRow of an option whose value is one of the names in `choices`, which help shows
// as a list such as "none|linear|yarn". `access` takes CliOptions& and returns a pointer to the
// member that parsing sets to the T of the chosen name.
template <typename T, typename Access>
OptionRow ChoiceRow(OptionGroup group, std::string names, std::string help, Access access,
                    std::vector<Choice<T>> choices) {
  std::string list;
  for (const Choice<T>& choice : choices) {
    if (!list.empty()) list += '|';
    list += choice.name;
  }
  return {group,
          std::move(names),
          list,
          std::move(help),
          [=](std::string_view text, CliOptions* options) {
            for (const Choice<T>& choice : choices) {
              if (choice.name == text) {
                *access(*options) = choice.value;
                return OkStatus();
              }
            }
            return InvalidArgument("expected " + list + ", found \"" + std::string(text) + "\"");
          },
          [=](CliOptions options) {
            for (const Choice<T>& choice : choices) {
              if (choice.value == *access(options)) return std::string(choice.name);
            }
            return std::string();
          }};
}

// Returns the OptionRow of a flag, an option without a value. Its `parse` assigns `value` to the
// member to which `access` returns a pointer.
template <typename T, typename Access>
OptionRow FlagRow(OptionGroup group, std::string names, std::string help, Access access, T value) {
  return {group,
          std::move(names),
          "",
          std::move(help),
          [=](std::string_view, CliOptions* options) {
            *access(*options) = value;
            return OkStatus();
          },
          nullptr};
}

}  // namespace ebb::cli

#endif  // EBB_APPS_OPTIONS_OPTION_VALUES_H_
