// Parses and prints the options of policies. MakePolicy() checks combinations.
#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>

#include "ebb/policy.h"
#include "src/base/key_values.h"

namespace ebb {
namespace {

constexpr std::string_view kWindowed = "windowed:";

Status NotABudget(std::string_view text, std::string_view why) {
  return InvalidArgument(
      fmt::format("budget \"{}\": {}; write rows (1024), rows beyond the protected (+1024), "
                  "percent (25%), bytes "
                  "(64MiB) or a compression ratio (1/8)",
                  text, why));
}

// Parses the whole text as a number. Returns false if any of it is left over.
template <typename T>
bool ParseNumber(std::string_view text, T* number) {
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *number);
  return error == std::errc() && rest == end;
}

}  // namespace

Result<Budget> ParseBudget(std::string_view text) {
  if (text.ends_with('%')) {
    double percent = 0;
    if (!ParseNumber(text.substr(0, text.size() - 1), &percent)) {
      return NotABudget(text, "not a number");
    }
    if (!(percent > 0 && percent <= 100)) return NotABudget(text, "not above 0% and up to 100%");
    return Budget{Budget::Unit::kPercent, percent};
  }
  if (text.starts_with("1/")) {
    double ratio = 0;
    if (!ParseNumber(text.substr(2), &ratio)) return NotABudget(text, "not a number");
    if (!(ratio >= 1 && std::isfinite(ratio))) return NotABudget(text, "a ratio below 1");
    return Budget{Budget::Unit::kCompression, ratio};
  }
  const bool beyond = text.starts_with('+');
  const std::string_view number = beyond ? text.substr(1) : text;
  if (beyond || number.find_first_not_of("0123456789") == std::string_view::npos) {
    int32_t rows = 0;
    if (!ParseNumber(number, &rows)) return NotABudget(text, "not a number of rows");
    if (rows <= 0) return NotABudget(text, "it must be above 0");
    return Budget{beyond ? Budget::Unit::kBeyond : Budget::Unit::kRows, static_cast<double>(rows)};
  }
  // A number without a unit counts rows, so it must be whole.
  const bool has_unit = !text.empty() && std::isalpha(static_cast<unsigned char>(text.back())) != 0;
  const Result<uint64_t> bytes = ParseBytes(text);
  if (!bytes.ok() || !has_unit) return NotABudget(text, "not an amount");
  return Budget{Budget::Unit::kBytes, static_cast<double>(*bytes)};
}

std::string FormatBudget(const Budget& budget) {
  switch (budget.unit) {
    case Budget::Unit::kNone:
      return "none";
    case Budget::Unit::kRows:
      return fmt::format("{} rows", budget.value);
    case Budget::Unit::kPercent:
      return fmt::format("{}%", budget.value);
    case Budget::Unit::kBytes:
      return fmt::format("{:.0f} bytes", budget.value);
    case Budget::Unit::kBeyond:
      return fmt::format("+{} rows", budget.value);
    case Budget::Unit::kCompression:
      return fmt::format("1/{}", budget.value);
  }
  return "unknown";
}

Status ParsePolicy(std::string_view text, PolicySpec* spec) {
  const size_t of_base = text.starts_with(kWindowed) ? kWindowed.size() : 0;
  const size_t colon = text.find(':', of_base);
  const std::string_view name = text.substr(0, colon);
  const auto malformed = [&](std::string_view why) {
    return InvalidArgument(
        fmt::format("policy \"{}\": {}; write NAME or NAME:key=value,key=value", text, why));
  };
  if (name.size() == of_base) return malformed("it has no name");
  std::map<std::string, std::string> params;
  if (colon != std::string_view::npos) {
    const auto parts = ParseKeyValues(text.substr(colon + 1));
    if (!parts.ok()) return malformed(parts.status().message());
    for (const auto& [key, value] : *parts) params.emplace(key, value);
  }
  spec->name = name;
  spec->params = std::move(params);
  return OkStatus();
}

}  // namespace ebb
