// Parses the options that name a device.
#include "ebb/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string>

#include "ebb/types.h"
#include "src/base/key_values.h"
#include "src/base/names.h"
#include "src/base/text/size_text.h"

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
    EBB_RETURN_IF_ERROR(CheckHasUnit(value, "GiB"));
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

// Returns whether `text` has the form HOST:PORT.
bool IsEndpoint(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return false;
  const std::string_view port = text.substr(colon + 1);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  constexpr size_t kMostDigits = 5;
  return !port.empty() && port.size() <= kMostDigits && std::ranges::all_of(port, is_digit);
}

// Returns whether a backend may have a device of this name, such as "cuda0".
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
  // The address of an RPC server contains colons, so that the options begin at the last colon
  // before "=".
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
  const auto parts = ParseKeyValues(text.substr(colon + 1));
  if (!parts.ok()) return refuse(parts.status().message());
  for (const auto& [key, value] : *parts) {
    const Status status = ParseKey(key, value, &spec);
    if (!status.ok()) return refuse(fmt::format("{}={}: {}", key, value, status.message()));
  }
  return spec;
}

Result<T1Mode> ParseT1Mode(std::string_view text) { return ParseName(kModes, "T1 mode", text); }

std::string_view DeviceAttentionName(DeviceAttention attention) {
  return NameOf(kAttentions, attention);
}

std::string_view T1ModeName(T1Mode mode) { return NameOf(kModes, mode); }

}  // namespace ebb
