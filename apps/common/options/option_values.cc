#include "apps/common/options/option_values.h"

#include <algorithm>
#include <charconv>
#include <system_error>

#include <fmt/format.h>

namespace ebb::cli {
namespace {

template <typename T>
bool ReadAll(std::string_view text, T* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

Status Expected(std::string_view what, Range range, std::string_view found) {
  return InvalidArgument(
      fmt::format("expected {} from {} to {}, found \"{}\"", what, range.min, range.max, found));
}

}  // namespace

Status ParseValue(std::string_view text, Range range, int* value) {
  int parsed = 0;
  if (!ReadAll(text, &parsed) || parsed < range.min || parsed > range.max) {
    return Expected("an integer", range, text);
  }
  *value = parsed;
  return OkStatus();
}

Status ParseValue(std::string_view text, Range range, double* value) {
  double parsed = 0;
  // The negated comparison also rejects NaN.
  if (!ReadAll(text, &parsed) || !(parsed >= range.min && parsed <= range.max)) {
    return Expected("a number", range, text);
  }
  *value = parsed;
  return OkStatus();
}

Status ParseValue(std::string_view text, Range range, float* value) {
  double parsed = 0;
  EBB_RETURN_IF_ERROR(ParseValue(text, range, &parsed));
  *value = static_cast<float>(parsed);
  return OkStatus();
}

Status ParseValue(std::string_view text, Range, uint64_t* value) {
  uint64_t parsed = 0;
  if (!ReadAll(text, &parsed)) {
    return InvalidArgument(
        fmt::format("expected an integer from 0 to 2^64 - 1, found \"{}\"", text));
  }
  *value = parsed;
  return OkStatus();
}

Status ParseValue(std::string_view text, Range range, std::optional<int>* value) {
  int parsed = 0;
  EBB_RETURN_IF_ERROR(ParseValue(text, range, &parsed));
  *value = parsed;
  return OkStatus();
}

Status ParseValue(std::string_view text, Range, std::string* value) {
  *value = text;
  return OkStatus();
}

Status ParseValue(std::string_view text, Range, std::optional<std::string>* value) {
  *value = std::string(text);
  return OkStatus();
}

Status ParseValue(std::string_view text, Range, std::vector<std::string>* value) {
  if (text.empty()) return InvalidArgument("expected a text, found none");
  value->emplace_back(text);
  return OkStatus();
}

Status ParseValue(std::string_view text, Range range, std::vector<int>* value) {
  std::vector<int> parsed;
  for (const std::string_view part : Split(text, ',')) {
    EBB_RETURN_IF_ERROR(ParseValue(part, range, &parsed.emplace_back()));
  }
  *value = std::move(parsed);
  return OkStatus();
}

std::string ShowValue(int value) { return std::to_string(value); }
std::string ShowValue(double value) { return fmt::format("{:g}", value); }
std::string ShowValue(uint64_t value) { return std::to_string(value); }
std::string ShowValue(const std::optional<int>& value) {
  return value ? std::to_string(*value) : "";
}
std::string ShowValue(const std::string& value) { return value; }
std::string ShowValue(const std::optional<std::string>& value) { return value.value_or(""); }
std::string ShowValue(const std::vector<std::string>& value) {
  std::string list;
  for (const std::string& one : value) list += (list.empty() ? "" : ", ") + one;
  return list;
}
std::string ShowValue(const std::vector<int>& value) {
  std::string list;
  for (const int one : value) {
    if (!list.empty()) list += ',';
    list += std::to_string(one);
  }
  return list;
}

std::vector<std::string_view> Split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(separator, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<std::string_view> NamesOf(const OptionRow& row) { return Split(row.names, ','); }

std::string LongName(const OptionRow& row) { return row.names.substr(row.names.rfind(',') + 1); }

Status SetOption(const OptionRow& row, std::string_view text, CliOptions* options) {
  EBB_RETURN_IF_ERROR(options->shared.Add(LongName(row), text));
  options->given.push_back(
      {LongName(row), row.value.empty() ? std::nullopt : std::optional<std::string>(text)});
  return row.parse(text, options);
}

}  // namespace ebb::cli
