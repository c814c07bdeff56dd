#include "apps/ebb/fit/rows.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <string>
#include <utility>

#include "apps/common/report.h"
#include "apps/ebb/fit/measure.h"
#include "ebb/benchmark.h"

namespace ebb::cli {
namespace {

std::string Lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// Returns the free memory that the device reports, or the largest number if it reports none.
uint64_t FreeDeviceBytes(const DeviceSpec& spec) {
  for (const DeviceDescription& device : ListDevices()) {
    if (device.name.starts_with(Lower(spec.name)) && device.free_bytes > 0) {
      return device.free_bytes;
    }
  }
  return std::numeric_limits<uint64_t>::max();
}

std::string T1Folder(const std::optional<TierSetting>& tiers) {
  return tiers.has_value() ? tiers->engine.t1_path : "";
}

}  // namespace

FitQuestion QuestionOf(FitModel sizes, const CliOptions& options, int threads, int context) {
  FitQuestion question = {.model = std::move(sizes)};
  FitRequest& request = question.request;
  request.SetContext(options.session.context > 0 ? options.session.context : context,
                     options.fit.prompt_tokens);
  request.requests = options.fit.requests;
  request.kv_type = options.engine.kv_type;
  request.prefill_chunk = options.engine.prefill_chunk;
  request.threads = threads;
  request.tiers = TiersOf(options.engine, options.session);
  return question;
}

Result<FitLimits> FindLimits(const CliOptions& options) {
  FitLimits limits;
  const bool on_device = options.engine.device.kind == DeviceKind::kBackend;
  if (on_device) {
    limits.device_bytes = options.fit.memory_bytes > 0 ? options.fit.memory_bytes
                                                       : FreeDeviceBytes(options.engine.device);
  } else {
    limits.memory_bytes = options.fit.memory_bytes;
  }
  if (options.fit.memory_bytes == 0 || on_device) {
    EBB_ASSIGN_OR_RETURN(const uint64_t available, AvailableMemoryBytes());
    limits.memory_bytes = available + ResidentBytes();
  }
  const Result<uint64_t> room = FreeDiskBytes(T1Folder(TiersOf(options.engine, options.session)));
  limits.disk_bytes = room.ok() ? *room : 0;
  return limits;
}

Result<Machine> MeasureMachine(const std::shared_ptr<const Model>& model,
                               const CliOptions& options) {
  constexpr size_t kQuickBytes = size_t{256} << 20;
  const MachineWatch watch;
  Machine machine;
  EBB_ASSIGN_OR_RETURN(machine.limits, FindLimits(options));
  EBB_ASSIGN_OR_RETURN(
      const MemoryBenchmark memory,
      BenchmarkMemory({.threads = options.engine.threads, .bytes = kQuickBytes, .repetitions = 3}));
  machine.threads = memory.threads;
  machine.speeds.memory_gb_s = memory.read_gb_s.median;
  const std::optional<TierSetting> tiers = TiersOf(options.engine, options.session);
  if (!tiers.has_value() || tiers->engine.t1 == T1Place::kFile) {
    const Result<double> disk = MeasureDiskRead(T1Folder(tiers));
    machine.speeds.disk_gb_s = disk.ok() ? *disk : 0;
  }
  if (options.fit.measure) {
    std::vector<CompressedType> types = {CompressedType::kInt8, CompressedType::kInt4,
                                         CompressedType::kInt3};
    if (HoldsHeads(CompressedType::kInt2, model->shape().head_dim) &&
        options.engine.device.kind == DeviceKind::kCpu) {
      types.push_back(CompressedType::kInt2);
    }
    if (tiers.has_value() && tiers->engine.t2_type == CompressedType::kInt8Naive) {
      types.push_back(CompressedType::kInt8Naive);
    }
    EBB_RETURN_IF_ERROR(
        MeasureDecoding(model, options, options.fit.requests, types, &machine.speeds));
  }
  if (options.fit.measure && !options.quiet) WarnOfOthers(watch.OthersShare());
  return machine;
}

FitRow Judge(const FitQuestion& question, const Machine& machine, FitSetting setting) {
  FitRow row = {.setting = std::move(setting)};
  FitRequest request = question.request;
  request.tiers = row.setting.tiers;
  row.bytes = FitRequestInto(question.model, request);
  if (question.as_trained.has_value()) {
    FitRequest trained = *question.as_trained;
    trained.tiers = request.tiers;
    const Result<FitBytes> bytes = FitRequestInto(question.model, trained);
    if (bytes.ok()) row.as_trained = *bytes;
  }
  row.fits = row.bytes.ok() ? CheckFit(*row.bytes, machine.limits) : row.bytes.status();
  row.largest_context = LargestContext(question.model, request, machine.limits);
  row.most_requests = MostRequests(question.model, request, machine.limits);
  // The speed at which a device reads its memory is not known before it runs, so no rate is
  // predicted.
  if (row.bytes.ok() && !request.on_device) {
    row.tokens_per_s = TokensPerSecond(*row.bytes, request.requests, machine.speeds);
  }
  return row;
}

uint64_t RowsBytes(const FitBytes& bytes) {
  return bytes.t0 + bytes.t1_memory + bytes.t1_disk + bytes.t2;
}

std::optional<MappedWeights> MappedOf(const std::vector<FitRow>& rows, const FitRequest& request,
                                      const Machine& machine) {
  const auto full = std::ranges::find_if(
      rows, [](const FitRow& row) { return !row.setting.tiers.has_value() && row.bytes.ok(); });
  if (full == rows.end()) return std::nullopt;
  return FitMappedWeights(*full->bytes, machine.limits, request.requests, machine.speeds);
}

}  // namespace ebb::cli
