// Parses device options.
#include "ebb/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>
#include <vector>

#include "ebb/types.h"
#include "src/base/names.h"

namespace ebb {
namespace {

constexpr std::string_view kExpected =
    "cpu, or a device that `ebb device list` names or rpc:HOST:PORT, either with :KEY=VALUE,... of "
    "memory (16GiB) and attention (auto, flash, eager)";

constexpr std::array<Named<T1Mode>, 3> kModes = {
    {{"auto", T1Mode::kAuto}, {"compute", T1Mode::kCompute}, {"stream", T1Mode::kStream}}};

constexpr std::array<Named<DeviceAttention>, 3> kAttentions = {
    {{"auto", DeviceAttention::kAuto},
     {"flash", DeviceAttention::kFlash},
     {"eager", DeviceAttention::kEager}}};

Status ParseKey(std::string_view key, std::string_view value, DeviceSpec* spec) {
  if (key == "memory") {
    EBB_ASSIGN_OR_RETURN(spec->memory_bytes, ParseBytes(value));
    return OkStatus();
  }
  if (key == "attention") {
    const std::optional<DeviceAttention> attention = ValueOf(kAttentions, value);
    if (!attention.has_value()) return InvalidArgument("expected auto, flash or eager");
    spec->attention = *attention;
    return OkStatus();
  }
  return InvalidArgument("no such key");
}

// "HOST:PORT"
bool IsEndpoint(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string_view port = text.substr(colon + 1);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  constexpr size_t kMostDigits = 5;
  return !port.empty() && port.size() <= kMostDigits && std::ranges::all_of(port, is_digit);
}

// Whether a backend may call a device so, as in "cuda0".
bool IsDeviceName(std::string_view name) {
  const auto belongs = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  };
  return !name.empty() && std::ranges::all_of(name, belongs);
}

}  // namespace

Result<DeviceSpec> ParseDevice(std::string_view text) {
  const auto refuse = [&](std::string_view why) {
    return InvalidArgument(fmt::format("device \"{}\": {}; write {}", text, why, kExpected));
  };
  DeviceSpec spec;
  if (text == "cpu") return spec;
  // An address has colons of its own.
  constexpr std::string_view kRpc = "rpc:";
  const bool is_rpc = text.starts_with(kRpc);
  const size_t equals_sign = text.find('=');
  const size_t colon =
      is_rpc ? text.substr(0, equals_sign).rfind(':', equals_sign) : text.find(':');
  const bool has_keys =
      colon != std::string_view::npos && (!is_rpc || equals_sign != std::string_view::npos);
  const std::string_view name = has_keys ? text.substr(0, colon) : text;
  const bool is_name = is_rpc ? IsEndpoint(name.substr(kRpc.size())) : IsDeviceName(name);
  if (name == "cpu" || !is_name) return refuse("not a device");
  spec.kind = DeviceKind::kBackend;
  spec.name = name;
  if (!has_keys) return spec;
  std::string_view rest = text.substr(colon + 1);
  std::vector<std::string_view> seen;
  while (true) {
    const size_t comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const size_t equals = part.find('=');
    if (equals == std::string_view::npos) {
      return refuse(fmt::format("\"{}\" is no KEY=VALUE", part));
    }
    const std::string_view key = part.substr(0, equals), value = part.substr(equals + 1);
    if (std::ranges::count(seen, key) > 0) return refuse(fmt::format("{} is given twice", key));
    seen.push_back(key);
    const Status status = ParseKey(key, value, &spec);
    if (!status.ok()) return refuse(fmt::format("{}: {}", part, status.message()));
    if (comma == std::string_view::npos) return spec;
    rest = rest.substr(comma + 1);
  }
}

Result<T1Mode> ParseT1Mode(std::string_view text) { return ParseName(kModes, "T1 mode", text); }

std::string_view DeviceAttentionName(DeviceAttention attention) {
  return NameOf(kAttentions, attention);
}

std::string_view T1ModeName(T1Mode mode) { return NameOf(kModes, mode); }

}  // namespace ebb
