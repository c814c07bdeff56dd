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

// The range of a number, bounds included.
struct Range {
  double min = std::numeric_limits<int>::min();
  double max = std::numeric_limits<int>::max();
};

// Each takes all of `text` or fails with what was expected and what was found.
[[nodiscard]] Status ParseValue(std::string_view text, Range range, int* value);
[[nodiscard]] Status ParseValue(std::string_view text, Range range, float* value);
[[nodiscard]] Status ParseValue(std::string_view text, Range range, double* value);
[[nodiscard]] Status ParseValue(std::string_view text, Range range, uint64_t* value);
[[nodiscard]] Status ParseValue(std::string_view text, Range range, std::optional<int>* value);
[[nodiscard]] Status ParseValue(std::string_view text, Range range, std::string* value);
[[nodiscard]] Status ParseValue(std::string_view text, Range range,
                                std::optional<std::string>* value);
// An option that may be repeated: adds one.
[[nodiscard]] Status ParseValue(std::string_view text, Range range,
                                std::vector<std::string>* value);
// "512,2048,8000": replaces what was there.
[[nodiscard]] Status ParseValue(std::string_view text, Range range, std::vector<int>* value);

// Empty when help has nothing to show.
[[nodiscard]] std::string ShowValue(int value);
[[nodiscard]] std::string ShowValue(double value);
[[nodiscard]] std::string ShowValue(uint64_t value);
[[nodiscard]] std::string ShowValue(const std::optional<int>& value);
[[nodiscard]] std::string ShowValue(const std::string& value);
[[nodiscard]] std::string ShowValue(const std::optional<std::string>& value);
[[nodiscard]] std::string ShowValue(const std::vector<std::string>& value);
[[nodiscard]] std::string ShowValue(const std::vector<int>& value);

// An option with a value. `access` takes CliOptions& and returns a pointer to the member.
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

// One whose value names something. An unset variable of the shell is no name.
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

// An option whose value is one of a few names; `choices` becomes its list "none|linear|yarn".
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

// An option without a value: it assigns `value` to the member.
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
