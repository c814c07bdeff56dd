#include "ebb/types.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <optional>
#include <string>

#include "src/base/names.h"

namespace ebb {
namespace {

constexpr std::array<Named<RowType>, 3> kRowTypes = {
    {{"f16", RowType::kF16}, {"bf16", RowType::kBf16}, {"f32", RowType::kF32}}};
constexpr std::array<Named<Granularity>, 3> kGranularities = {
    {{"token", Granularity::kToken}, {"layer", Granularity::kLayer}, {"head", Granularity::kHead}}};
constexpr std::array<Named<Tier>, kNumTiers> kTiers = {
    {{"T0", Tier::kT0}, {"T1", Tier::kT1}, {"T2", Tier::kT2}, {"T3", Tier::kT3}}};
// kByteUnits are in lower case. As in Kubernetes and SI, M alone is a million and Mi is 2^20.
constexpr std::array<Named<uint64_t>, 18> kByteUnits = {{{"", 1},
                                                         {"b", 1},
                                                         {"k", 1000},
                                                         {"kb", 1000},
                                                         {"m", 1000ull * 1000},
                                                         {"mb", 1000ull * 1000},
                                                         {"g", 1000ull * 1000 * 1000},
                                                         {"gb", 1000ull * 1000 * 1000},
                                                         {"t", 1000ull * 1000 * 1000 * 1000},
                                                         {"tb", 1000ull * 1000 * 1000 * 1000},
                                                         {"ki", 1ull << 10},
                                                         {"kib", 1ull << 10},
                                                         {"mi", 1ull << 20},
                                                         {"mib", 1ull << 20},
                                                         {"gi", 1ull << 30},
                                                         {"gib", 1ull << 30},
                                                         {"ti", 1ull << 40},
                                                         {"tib", 1ull << 40}}};

// Returns the bytes of a unit; nullopt: the unit does not exist.
std::optional<uint64_t> UnitBytes(std::string_view unit) {
  std::string lower(unit);
  for (char& letter : lower) {
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  }
  return ValueOf(kByteUnits, lower);
}

// Returns the beginning of `text` that looks like a number: digits, a point, an exponent.
std::string_view NumberIn(std::string_view text) {
  constexpr std::string_view kDigits = "0123456789";
  size_t end = std::min(text.find_first_not_of("0123456789."), text.size());
  const bool has_exponent = end + 1 < text.size() && (text[end] == 'e' || text[end] == 'E');
  if (!has_exponent) return text.substr(0, end);
  const size_t digits = end + 1 + (text[end + 1] == '+' ? 1 : 0);
  const size_t after = std::min(text.find_first_not_of(kDigits, digits), text.size());
  return text.substr(0, after > digits ? after : end);
}

}  // namespace

size_t RowTypeBytes(RowType type) { return type == RowType::kF32 ? 4 : 2; }

std::string_view RowTypeName(RowType type) { return NameOf(kRowTypes, type); }

Result<RowType> ParseRowType(std::string_view name) {
  return ParseName(kRowTypes, "row type", name);
}

std::string_view GranularityName(Granularity granularity) {
  return NameOf(kGranularities, granularity);
}

Result<Granularity> ParseGranularity(std::string_view name) {
  return ParseName(kGranularities, "granularity", name);
}

std::string_view TierName(Tier tier) { return NameOf(kTiers, tier); }

Result<uint64_t> ParseBytes(std::string_view text) {
  const auto refuse = [&] {
    return InvalidArgument(
        fmt::format("expected a size from 1 to 2^64 - 1 bytes, such as 1000000, 512MiB, 1.5Gi, "
                    "2GB or 1e9, found \"{}\"",
                    text));
  };
  const std::string_view number = NumberIn(text);
  const std::optional<uint64_t> unit = UnitBytes(text.substr(number.size()));
  if (!unit.has_value()) return refuse();
  const char* const end = number.data() + number.size();
  uint64_t whole = 0;
  uint64_t bytes = 0;
  const auto [rest, error] = std::from_chars(number.data(), end, whole);
  if (rest == end && error == std::errc()) {
    if (__builtin_mul_overflow(whole, *unit, &bytes)) return refuse();
  } else if (rest != end) {
    // Numbers with a fraction or an exponent are exact up to 2^53 bytes, which suffices for a size.
    double value = 0;
    const auto [last, failure] = std::from_chars(number.data(), end, value);
    constexpr double kTooMany = 18446744073709551616.0;  // 2^64
    value *= static_cast<double>(*unit);
    if (last != end || failure != std::errc() || !(value < kTooMany)) return refuse();
    bytes = static_cast<uint64_t>(value);
  }
  return bytes > 0 ? Result<uint64_t>(bytes) : refuse();
}

int ModelShape::SmallestWindow() const {
  int smallest = 0;
  for (const int window : windows) {
    if (window > 0 && (smallest == 0 || window < smallest)) smallest = window;
  }
  return smallest;
}

int ModelShape::NumStreams() const {
  if (kv_heads_by_layer.empty()) return num_layers * num_kv_heads;
  return std::accumulate(kv_heads_by_layer.begin(), kv_heads_by_layer.end(), 0);
}

int ModelShape::NumGroups(Granularity granularity) const {
  switch (granularity) {
    case Granularity::kToken:
      return 1;
    case Granularity::kLayer:
      return num_layers;
    case Granularity::kHead:
      return NumStreams();
  }
  return 0;
}

}  // namespace ebb
