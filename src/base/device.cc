// What a user writes about the device, read.
#include "ebb/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ebb/types.h"

namespace ebb {
namespace {

constexpr std::string_view kExpected =
    "cpu, a device that `ebb device list` names or rpc:HOST:PORT, either with :KEY=VALUE,... of "
    "memory "
    "(16GiB) and attention (auto or ggml), or sim:KEY=VALUE,... with h2d, d2h, device, host "
    "(25GBps), latency, layer (10us), memory (16GiB), copies (late, once or thread)";

using Unit = std::pair<std::string_view, double>;
constexpr std::array<Unit, 4> kRates = {
    {{"TBps", 1e12}, {"GBps", 1e9}, {"MBps", 1e6}, {"kBps", 1e3}}};
constexpr std::array<Unit, 4> kTimes = {{{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}}};

constexpr std::array<std::pair<std::string_view, CopyArrival>, 3> kArrivals = {
    {{"late", CopyArrival::kLate},
     {"once", CopyArrival::kAtOnce},
     {"thread", CopyArrival::kThread}}};
constexpr std::array<std::pair<std::string_view, T1Mode>, 3> kModes = {
    {{"auto", T1Mode::kAuto}, {"compute", T1Mode::kCompute}, {"stream", T1Mode::kStream}}};

// A finite number that is not negative, in a unit.
template <size_t n>
std::optional<double> ParseNumber(std::string_view text, const std::array<Unit, n>& units) {
  double number = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc() || !std::isfinite(number) || std::signbit(number)) return std::nullopt;
  const std::string_view unit(rest, static_cast<size_t>(end - rest));
  for (const auto& [name, value] : units) {
    if (name == unit && std::isfinite(number * value)) return number * value;
  }
  return std::nullopt;
}

// Beyond these the simulated clock, a sum of doubles, would lose the short times beside the long.
constexpr double kMinRate = 1e3, kMaxRate = 1e15;
constexpr double kMaxSeconds = 1e3;

Status ParseRate(std::string_view text, double* rate) {
  const std::optional<double> number = ParseNumber(text, kRates);
  if (!number || *number < kMinRate || *number > kMaxRate) {
    return InvalidArgument("expected a rate from 1kBps to 1000TBps, as 25GBps");
  }
  *rate = *number;
  return OkStatus();
}

Status ParseTime(std::string_view text, double* seconds) {
  const std::optional<double> number = ParseNumber(text, kTimes);
  if (!number || *number > kMaxSeconds) {
    return InvalidArgument("expected a time from 0ns to 1000s, as 10us");
  }
  *seconds = *number;
  return OkStatus();
}

Status ParseKeyOfBackend(std::string_view key, std::string_view value, DeviceSpec* spec) {
  if (key == "memory") {
    EBB_ASSIGN_OR_RETURN(spec->memory_bytes, ParseBytes(value));
    return OkStatus();
  }
  if (key == "attention") {
    if (value != "auto" && value != "ggml") return InvalidArgument("expected auto or ggml");
    spec->attention = value == "auto" ? DeviceAttention::kAuto : DeviceAttention::kGgml;
    return OkStatus();
  }
  return InvalidArgument("no such key");
}

Status ParseKeyOfSim(std::string_view key, std::string_view value, DeviceSpec* spec) {
  if (key == "h2d") return ParseRate(value, &spec->h2d_bytes_per_s);
  if (key == "d2h") return ParseRate(value, &spec->d2h_bytes_per_s);
  if (key == "device") return ParseRate(value, &spec->device_bytes_per_s);
  if (key == "host") return ParseRate(value, &spec->host_bytes_per_s);
  if (key == "latency") return ParseTime(value, &spec->latency_seconds);
  if (key == "layer") return ParseTime(value, &spec->layer_seconds);
  if (key == "memory") {
    EBB_ASSIGN_OR_RETURN(spec->memory_bytes, ParseBytes(value));
    return OkStatus();
  }
  if (key == "copies") {
    for (const auto& [name, arrival] : kArrivals) {
      if (name != value) continue;
      spec->copies = arrival;
      return OkStatus();
    }
    return InvalidArgument("expected late, once or thread");
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
  const bool is_sim = name == "sim";
  spec.kind = is_sim ? DeviceKind::kSim : DeviceKind::kBackend;
  if (!is_sim) {
    const bool is_name = is_rpc ? IsEndpoint(name.substr(kRpc.size())) : IsDeviceName(name);
    if (name == "cpu" || !is_name) return refuse("not a device");
    spec.name = name;
    spec.memory_bytes = 0;
  }
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
    const Status status =
        is_sim ? ParseKeyOfSim(key, value, &spec) : ParseKeyOfBackend(key, value, &spec);
    if (!status.ok()) return refuse(fmt::format("{}: {}", part, status.message()));
    if (comma == std::string_view::npos) return spec;
    rest = rest.substr(comma + 1);
  }
}

Result<T1Mode> ParseT1Mode(std::string_view text) {
  for (const auto& [name, mode] : kModes) {
    if (name == text) return mode;
  }
  return InvalidArgument(fmt::format("unknown T1 mode \"{}\"; valid: auto, compute, stream", text));
}

std::string_view T1ModeName(T1Mode mode) {
  for (const auto& [name, value] : kModes) {
    if (value == mode) return name;
  }
  return "unknown";
}

}  // namespace ebb
