// Lists settings of the tiers from the gentlest on, and finds what fits into the memory.
#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "ebb/fit.h"
#include "ebb/setting_fields.h"
#include "src/base/text/size_text.h"

namespace ebb {
namespace {

bool Fits(const FitModel& model, const FitRequest& request, const FitLimits& limits) {
  const Result<FitBytes> bytes = FitRequestInto(model, request);
  return bytes.ok() && CheckFit(*bytes, limits).ok();
}

// Returns the largest n from 1 to `max` with fits(n), or 0 if there is none. REQUIRES: fits(n) is
// true up to some n and false above it.
template <typename Fitting>
int Largest(int max, Fitting fits) {
  int64_t low = 0;
  int64_t high = 1;
  while (high <= max && fits(static_cast<int>(high))) {
    low = static_cast<int>(high);
    high *= 2;
  }
  high = std::min<int64_t>(high, int64_t{max} + 1);
  while (high - low > 1) {
    const int middle = static_cast<int>(low + (high - low) / 2);
    (fits(middle) ? low : high) = middle;
  }
  return static_cast<int>(low);
}

FitSetting Make(const TierSetting& tiers) { return {TierOptionsText(tiers), tiers}; }

FitSetting T1Setting(T1Place place, int t0_percent) {
  return Make({.engine = {.t1 = place}, .shares = {.t0_share = t0_percent / 100.0}});
}
FitSetting FileSetting(int t0_percent) { return T1Setting(T1Place::kFile, t0_percent); }
FitSetting HostSetting(int t0_percent) { return T1Setting(T1Place::kHost, t0_percent); }

FitSetting EvictFrom(FitSetting setting, int percent) {
  setting.tiers->shares.evict_share = percent / 100.0;
  return Make(*setting.tiers);
}

FitSetting SelectFrom(FitSetting setting) {
  setting.tiers->shares.t1_read = T1Read::kSelect;
  return Make(*setting.tiers);
}

void AppendOldRowsSettings(int head_dim, bool on_device, std::vector<FitSetting>* settings) {
  for (const CompressedType type : {CompressedType::kInt8, CompressedType::kInt4,
                                    CompressedType::kInt3, CompressedType::kInt2}) {
    if (!CheckCompressedType(type, head_dim, on_device).ok()) continue;
    settings->push_back(Make(CompressedCache(type)));
  }
}

// Returns a setting that keeps the prompt in T0, evicts a share of the other rows and compresses
// the rest.
FitSetting EvictSetting(int percent) {
  return Make({.engine = {.t1 = T1Place::kNone, .t2_type = CompressedType::kInt4},
               .shares = {.t0_share = 1, .t2_share = 1, .evict_share = percent / 100.0}});
}

}  // namespace

bool PlacesByPosition(const FitSetting& setting) {
  if (!setting.tiers.has_value()) return false;
  return ReadsSelectively(setting.tiers->shares) || CompressesOldRows(setting.tiers->shares);
}

bool IsAllowed(const FitSetting& setting, const FitRequest& request) {
  if (request.retention == nullptr) {
    return request.places_by_position || !PlacesByPosition(setting);
  }
  // The policy says which rows stay, and scores may need the attention to all of them.
  return !setting.tiers.has_value() ||
         (setting.tiers->shares.evict_share == 0 && !ReadsSelectively(setting.tiers->shares));
}

Status CheckFit(const FitBytes& bytes, const FitLimits& limits) {
  if (bytes.Memory() > limits.memory_bytes) {
    const ComparedSizes sizes(bytes.Memory(), limits.memory_bytes);
    return OutOfMemory(fmt::format("the setting takes {} of memory, and the limit is {}",
                                   sizes.first, sizes.second));
  }
  if (bytes.DeviceMemory() > limits.device_bytes) {
    const ComparedSizes sizes(bytes.DeviceMemory(), limits.device_bytes);
    return OutOfMemory(
        fmt::format("the setting takes {} of the device's memory, and the limit is {}", sizes.first,
                    sizes.second));
  }
  if (bytes.t1_disk > limits.disk_bytes) {
    const ComparedSizes sizes(bytes.t1_disk, limits.disk_bytes);
    return StorageFull(
        fmt::format("T1 takes {} on the disk, and {} are free", sizes.first, sizes.second));
  }
  return OkStatus();
}

int LargestContext(const FitModel& model, FitRequest request, const FitLimits& limits) {
  constexpr int kMaxTokens = 1 << 22;
  const int given = request.prompts_at_any_time ? kPromptsOfConversation : request.prompt_tokens;
  return Largest(kMaxTokens, [&](int context) {
    request.SetContext(context, given);
    return Fits(model, request, limits);
  });
}

int MostRequests(const FitModel& model, FitRequest request, const FitLimits& limits) {
  constexpr int kMaxRequests = 1 << 16;
  return Largest(kMaxRequests, [&](int requests) {
    request.requests = requests;
    return Fits(model, request, limits);
  });
}

double TokensPerSecond(const FitBytes& bytes, int requests, const FitSpeeds& speeds) {
  const bool is_measured = speeds.step_seconds > 0;
  if (!is_measured && speeds.memory_gb_s <= 0) return 0;
  if (bytes.rows_read_disk > 0 && speeds.disk_gb_s <= 0) return 0;
  const auto seconds = [](uint64_t of_bytes, double gb_s) {
    return of_bytes == 0 ? 0.0 : static_cast<double>(of_bytes) / (gb_s * 1e9);
  };
  if (is_measured) {
    const auto compressed = speeds.compressed_rows_gb_s.find(bytes.t2_type);
    const bool is_unknown = compressed == speeds.compressed_rows_gb_s.end();
    if (speeds.full_rows_gb_s <= 0 || (bytes.rows_read_compressed > 0 && is_unknown)) return 0;
    const double computing =
        speeds.step_seconds +
        seconds(bytes.rows_read_memory - bytes.rows_read_compressed, speeds.full_rows_gb_s) +
        seconds(bytes.rows_read_compressed, is_unknown ? 0 : compressed->second);
    return requests / std::max(computing, seconds(bytes.rows_read_disk, speeds.disk_gb_s));
  }
  const uint64_t weights = bytes.weights - bytes.weights_unread;
  const double step = std::max(seconds(weights + bytes.rows_read_memory, speeds.memory_gb_s),
                               seconds(bytes.rows_read_disk, speeds.disk_gb_s));
  return step > 0 ? requests / step : 0;
}

std::optional<MappedWeights> FitMappedWeights(const FitBytes& bytes, const FitLimits& limits,
                                              int requests, const FitSpeeds& speeds) {
  const uint64_t rest = bytes.Memory() - bytes.weights;
  if (bytes.on_device || rest > limits.memory_bytes || bytes.weights == 0) return std::nullopt;
  const uint64_t resident = limits.memory_bytes - rest;
  if (resident >= bytes.weights) return std::nullopt;
  const double missing = 1 - static_cast<double>(resident) / static_cast<double>(bytes.weights);
  MappedWeights mapped = {.resident_bytes = resident};
  mapped.disk_bytes_per_step =
      static_cast<uint64_t>(static_cast<double>(bytes.weights - bytes.weights_unread) * missing);
  if (speeds.disk_gb_s > 0 && mapped.disk_bytes_per_step > 0) {
    mapped.tokens_per_s =
        requests * speeds.disk_gb_s * 1e9 / static_cast<double>(mapped.disk_bytes_per_step);
  }
  return mapped;
}

std::vector<FitSetting> TypicalSettings(int head_dim, bool on_device, bool t2_on_device) {
  if (on_device) {
    std::vector<FitSetting> settings = {
        {"full"}, HostSetting(50), HostSetting(10), SelectFrom(HostSetting(10)), FileSetting(50)};
    if (t2_on_device) AppendOldRowsSettings(head_dim, on_device, &settings);
    settings.push_back(EvictFrom(HostSetting(50), 10));
    return settings;
  }
  std::vector<FitSetting> settings = {{"full"}, FileSetting(50)};
  AppendOldRowsSettings(head_dim, on_device, &settings);
  settings.push_back(SelectFrom(FileSetting(50)));
  settings.push_back(
      Make({.engine = {.t1 = T1Place::kNone}, .shares = {.t0_share = 1, .evict_share = 0.1}}));
  return settings;
}

std::vector<FitSetting> SettingsByGentleness(int head_dim, bool on_device, bool t2_on_device) {
  std::vector<FitSetting> settings = {{"full"}};
  if (on_device) {
    if (t2_on_device) AppendOldRowsSettings(head_dim, on_device, &settings);
    for (int percent = 90; percent >= 0; percent -= 10) settings.push_back(HostSetting(percent));
    for (int percent = 90; percent >= 0; percent -= 10) settings.push_back(FileSetting(percent));
    for (int percent = 10; percent <= 90; percent += 10) {
      settings.push_back(EvictFrom(HostSetting(0), percent));
    }
    return settings;
  }
  AppendOldRowsSettings(head_dim, on_device, &settings);
  for (int percent = 90; percent >= 0; percent -= 10) {
    settings.push_back(SelectFrom(FileSetting(percent)));
  }
  for (int percent = 90; percent >= 0; percent -= 10) settings.push_back(FileSetting(percent));
  for (int percent = 10; percent <= 90; percent += 10) settings.push_back(EvictSetting(percent));
  return settings;
}

Result<FitSetting> GentlestSetting(const FitModel& model, const FitRequest& request,
                                   const FitLimits& limits) {
  constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  uint64_t least = kNone;
  Status refused;
  FitRequest candidate = request;
  for (FitSetting& setting :
       SettingsByGentleness(model.shape.head_dim, request.on_device, request.t2_on_device)) {
    if (!IsAllowed(setting, request)) continue;
    candidate.tiers = setting.tiers;
    const Result<FitBytes> bytes = FitRequestInto(model, candidate);
    if (!bytes.ok()) {
      if (bytes.status().code() == StatusCode::kInvalidArgument) return bytes.status();
      refused = bytes.status();
      continue;
    }
    if (CheckFit(*bytes, limits).ok()) return std::move(setting);
    if (bytes->t1_disk > limits.disk_bytes) continue;
    least = std::min(least, request.on_device ? bytes->DeviceMemory() : bytes->Memory());
  }
  if (least == kNone && !refused.ok()) return refused;
  if (request.on_device) {
    return OutOfMemory(fmt::format(
        "no setting of the tiers fits {} tokens into {} of the device's memory and {} of "
        "the host's; the smallest takes {} of the device's, {} of them weights",
        request.context, SizeText(limits.device_bytes), SizeText(limits.memory_bytes),
        SizeText(least), SizeText(model.weight_bytes)));
  }
  return OutOfMemory(
      fmt::format("no setting of the tiers fits {} tokens into {}; the smallest takes {}, {} of "
                  "them for the weights and the program; a smaller model or context takes less",
                  request.context, SizeText(limits.memory_bytes), SizeText(least),
                  SizeText(model.weight_bytes + model.program_bytes)));
}

}  // namespace ebb
