#include "ebb/types.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <limits>
#include <numeric>
#include <optional>

#include "src/base/names.h"

namespace ebb {
namespace {

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
  uint64_t number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number);
  const std::string_view unit(rest, static_cast<size_t>(end - rest));
  const std::optional<uint64_t> unit_bytes = ValueOf(kByteUnits, unit);
  if (error == std::errc::invalid_argument || !unit_bytes.has_value()) {
    return InvalidArgument(
        fmt::format("\"{}\" is not a number of bytes; write it as 1000000, 512MiB or 2GB", text));
  }
  if (error == std::errc::result_out_of_range ||
      number > std::numeric_limits<uint64_t>::max() / *unit_bytes) {
    return InvalidArgument(fmt::format("\"{}\" is more than 64 bits of bytes", text));
  }
  if (number == 0) return InvalidArgument(fmt::format("\"{}\": expected more than 0 bytes", text));
  return number * *unit_bytes;
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
