#include "ebb/types.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <limits>
#include <numeric>

namespace ebb {
namespace {

template <typename T>
struct Named {
  std::string_view name;
  T value;
};

constexpr std::array<Named<RowType>, 3> kRowTypes = {
    {{"f16", RowType::kF16}, {"bf16", RowType::kBf16}, {"f32", RowType::kF32}}};
constexpr std::array<Named<Granularity>, 3> kGranularities = {
    {{"token", Granularity::kToken}, {"layer", Granularity::kLayer}, {"head", Granularity::kHead}}};
constexpr std::array<Named<Tier>, kNumTiers> kTiers = {
    {{"T0", Tier::kT0}, {"T1", Tier::kT1}, {"T2", Tier::kT2}, {"T3", Tier::kT3}}};
constexpr std::array<Named<uint64_t>, 11> kByteUnits = {{{"", 1},
                                                         {"B", 1},
                                                         {"kB", 1000},
                                                         {"KB", 1000},
                                                         {"MB", 1000ull * 1000},
                                                         {"GB", 1000ull * 1000 * 1000},
                                                         {"TB", 1000ull * 1000 * 1000 * 1000},
                                                         {"KiB", 1ull << 10},
                                                         {"MiB", 1ull << 20},
                                                         {"GiB", 1ull << 30},
                                                         {"TiB", 1ull << 40}}};

template <typename T, size_t n>
std::string_view NameOf(const std::array<Named<T>, n>& table, T value) {
  for (const Named<T>& row : table) {
    if (row.value == value) return row.name;
  }
  return "unknown";
}

template <typename T, size_t n>
Result<T> Parse(const std::array<Named<T>, n>& table, std::string_view what,
                std::string_view name) {
  std::string valid;
  for (const Named<T>& row : table) {
    if (row.name == name) return row.value;
    valid.append(valid.empty() ? "" : ", ").append(row.name);
  }
  return InvalidArgument(fmt::format("unknown {} \"{}\"; valid: {}", what, name, valid));
}

}  // namespace

size_t RowTypeBytes(RowType type) { return type == RowType::kF32 ? 4 : 2; }

std::string_view RowTypeName(RowType type) { return NameOf(kRowTypes, type); }

Result<RowType> ParseRowType(std::string_view name) { return Parse(kRowTypes, "row type", name); }

std::string_view GranularityName(Granularity granularity) {
  return NameOf(kGranularities, granularity);
}

Result<Granularity> ParseGranularity(std::string_view name) {
  return Parse(kGranularities, "granularity", name);
}

std::string_view TierName(Tier tier) { return NameOf(kTiers, tier); }

Result<uint64_t> ParseBytes(std::string_view text) {
  uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(rest, static_cast<size_t>(end - rest));
  const Named<uint64_t>* found = nullptr;
  for (const Named<uint64_t>& row : kByteUnits) {
    if (row.name == unit) found = &row;
  }
  if (error == std::errc::invalid_argument || found == nullptr) {
    return InvalidArgument(
        fmt::format("\"{}\" is not a number of bytes; write it as 1000000, 512MiB or 2GB", text));
  }
  if (error == std::errc::result_out_of_range ||
      number > std::numeric_limits<uint64_t>::max() / found->value) {
    return InvalidArgument(fmt::format("\"{}\" is more than 64 bits of bytes", text));
  }
  if (number == 0) return InvalidArgument(fmt::format("\"{}\": expected more than 0 bytes", text));
  return number * found->value;
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
