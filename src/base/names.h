// Looks up names of enum values in tables, by value and by name.
#ifndef EBB_BASE_NAMES_H_
#define EBB_BASE_NAMES_H_

#include <fmt/format.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "ebb/status.h"

namespace ebb {

template <typename T>
struct Named {
  std::string_view name;
  T value;
};

// Returns the name of a value; "unknown" if the table lacks it.
template <typename T, size_t n>
std::string_view NameOf(const std::array<Named<T>, n>& table, T value) {
  for (const Named<T>& row : table) {
    if (row.value == value) return row.name;
  }
  return "unknown";
}

template <typename T, size_t n>
std::optional<T> ValueOf(const std::array<Named<T>, n>& table, std::string_view name) {
  for (const Named<T>& row : table) {
    if (row.name == name) return row.value;
  }
  return std::nullopt;
}

// Returns the value with this name. Errors: InvalidArgument, listing the valid names; `what` names
// the kind of name in the message.
template <typename T, size_t n>
Result<T> ParseName(const std::array<Named<T>, n>& table, std::string_view what,
                    std::string_view name) {
  if (const std::optional<T> value = ValueOf(table, name); value.has_value()) return *value;
  std::string valid;
  for (const Named<T>& row : table) {
    valid.append(valid.empty() ? "" : ", ").append(row.name);
  }
  return InvalidArgument(fmt::format("unknown {} \"{}\"; valid: {}", what, name, valid));
}

}  // namespace ebb

#endif  // EBB_BASE_NAMES_H_
