// Implements `ebb fit`: shows the memory that a model, a context and tiers need, and what fits.
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/common/memory.h"
#include "apps/common/options/option_errors.h"
#include "apps/common/report.h"
#include "apps/common/setup.h"
#include "apps/common/terminal/bytes.h"
#include "apps/ebb/fit/commands.h"
#include "apps/ebb/fit/measure.h"
#include "ebb/benchmark.h"
#include "ebb/fit.h"

namespace ebb::cli {
namespace {

struct Machine {
  FitLimits limits;
  FitSpeeds speeds;
  int threads = 0;
};

struct FitQuestion {
  FitModel model;
  FitRequest request;
};

struct Row {
  FitSetting setting;
  Result<FitBytes> bytes = FitBytes();
  Status fits;
  int largest_context = 0;
  int most_requests = 0;
  double tokens_per_s = 0;
};

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

// Measures the machine. If the disk cannot be measured, figures that depend on it are left out
// instead of an error.
Result<Machine> MeasureMachine(const std::shared_ptr<const Model>& model,
                               const CliOptions& options) {
  constexpr size_t kQuickBytes = size_t{256} << 20;
  const MachineWatch watch;
  Machine machine;
  const bool on_device = options.engine.device.kind == DeviceKind::kBackend;
  if (on_device) {
    machine.limits.device_bytes = options.fit.memory_bytes > 0
                                      ? options.fit.memory_bytes
                                      : FreeDeviceBytes(options.engine.device);
  } else {
    machine.limits.memory_bytes = options.fit.memory_bytes;
  }
  if (options.fit.memory_bytes == 0 || on_device) {
    EBB_ASSIGN_OR_RETURN(const uint64_t available, AvailableMemoryBytes());
    machine.limits.memory_bytes = available + ResidentBytes();
  }
  EBB_ASSIGN_OR_RETURN(
      const MemoryBenchmark memory,
      BenchmarkMemory({.threads = options.engine.threads, .bytes = kQuickBytes, .repetitions = 3}));
  machine.threads = memory.threads;
  machine.speeds.memory_gb_s = memory.read_gb_s.median;
  const std::optional<TierSetting> tiers = TiersOf(options.engine, options.session);
  const std::string folder = tiers.has_value() ? tiers->engine.t1_path : "";
  const Result<uint64_t> room = FreeDiskBytes(folder);
  machine.limits.disk_bytes = room.ok() ? *room : 0;
  if (!tiers.has_value() || tiers->engine.t1 == T1Place::kFile) {
    const Result<double> disk = MeasureDiskRead(folder);
    machine.speeds.disk_gb_s = disk.ok() ? *disk : 0;
  }
  if (options.fit.measure) {
    std::vector<CompressedType> types = {CompressedType::kInt8, CompressedType::kInt4,
                                         CompressedType::kInt3};
    if (tiers.has_value() && tiers->engine.t2_type == CompressedType::kInt8Naive) {
      types.push_back(CompressedType::kInt8Naive);
    }
    EBB_RETURN_IF_ERROR(
        MeasureDecoding(model, options, options.fit.requests, types, &machine.speeds));
  }
  if (!options.quiet) WarnOfOthers(watch.OthersShare());
  return machine;
}

Row Judge(const FitQuestion& question, const Machine& machine, FitSetting setting) {
  Row row = {.setting = std::move(setting)};
  FitRequest request = question.request;
  request.tiers = row.setting.tiers;
  row.bytes = FitRequestInto(question.model, request);
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

Json ToJson(const Row& row) {
  Json json = {{"setting", row.setting.name}, {"fits", row.fits.ok()}};
  if (!row.fits.ok()) json["why_not"] = TextWithOption(row.fits);
  json["largest_context"] = row.largest_context;
  json["most_requests"] = row.most_requests;
  if (!row.bytes.ok()) return json;
  const FitBytes& bytes = *row.bytes;
  json["tokens_per_s"] = row.tokens_per_s;
  json["memory_bytes"] = bytes.Memory();
  json["disk_bytes"] = bytes.t1_disk;
  if (bytes.on_device) json["device_memory_bytes"] = bytes.DeviceMemory();
  json["bytes"] = {{"weights", bytes.weights},
                   {"program", bytes.program},
                   {"compute", bytes.compute},
                   {"t0", bytes.t0},
                   {"t1_memory", bytes.t1_memory},
                   {"t1_disk", bytes.t1_disk},
                   {"t2", bytes.t2},
                   {"tables", bytes.tables},
                   {"states", bytes.states},
                   {"staging", bytes.staging},
                   {"staging_on_host", bytes.staging_on_host}};
  return json;
}

// Returns how the full cache runs if weights stay in the file for lack of memory; nothing if all
// weights fit, or if the rest does not fit either way.
std::optional<MappedWeights> MappedOf(const std::vector<Row>& rows, const FitRequest& request,
                                      const Machine& machine) {
  const auto full = std::ranges::find_if(
      rows, [](const Row& row) { return !row.setting.tiers.has_value() && row.bytes.ok(); });
  if (full == rows.end()) return std::nullopt;
  return FitMappedWeights(*full->bytes, machine.limits, request.requests, machine.speeds);
}

std::string TableLine(const Row& row) {
  if (!row.bytes.ok()) {
    return fmt::format("{:<42} {}\n", row.setting.name, TextWithOption(row.fits));
  }
  const FitBytes& b = *row.bytes;
  std::string speed =
      row.tokens_per_s > 0 ? fmt::format("{:.1f}", row.tokens_per_s) : std::string("?");
  if (b.on_device) speed = InMiB(b.DeviceMemory());
  return fmt::format("{:<42} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>4} {:>9} {:>8} {:>8}\n",
                     row.setting.name, InMiB(b.t0), InMiB(b.t1_memory), InMiB(b.t2),
                     InMiB(b.tables), InMiB(b.staging), InMiB(b.Memory()), InMiB(b.t1_disk),
                     row.fits.ok() ? "yes" : "no", row.largest_context, row.most_requests, speed);
}

std::string Text(const Model& model, const FitQuestion& question, const Machine& machine,
                 const std::vector<Row>& rows, const Result<FitSetting>& gentlest) {
  const FitRequest& request = question.request;
  std::string text = fmt::format(
      "{}: {} sequence{} of {} tokens, {} of them given, rows in {}\n"
      "measured: memory {:.1f} GB/s ({} threads), disk {}, at most {} MiB of memory and {} MiB of "
      "disk, program and tokenizer {} MiB\n"
      "computed: all else; {}. In MiB:\n\n",
      model.description(), request.requests, request.requests == 1 ? "" : "s", request.context,
      request.prompt_tokens, RowTypeName(request.kv_type), machine.speeds.memory_gb_s,
      machine.threads,
      machine.speeds.disk_gb_s > 0 ? fmt::format("{:.2f} GB/s", machine.speeds.disk_gb_s)
                                   : std::string("not measured"),
      InMiB(machine.limits.memory_bytes), InMiB(machine.limits.disk_bytes),
      InMiB(question.model.program_bytes),
      machine.speeds.step_seconds > 0
          ? fmt::format("tokens/s from a step of {:.1f} ms without rows and attention at {:.1f} "
                        "GB/s",
                        1000 * machine.speeds.step_seconds, machine.speeds.full_rows_gb_s)
          : std::string("tokens/s are what those bandwidths allow, no more (--measure: what this "
                        "machine reaches)"));
  text += fmt::format("{:<42} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>8} {:>4} {:>9} {:>8} {:>8}\n",
                      "setting", "T0", "T1", "T2", "tables", "staging", "memory", "disk", "fits",
                      "context", "requests", request.on_device ? "device" : "tokens/s");
  for (const Row& row : rows) text += TableLine(row);
  if (request.on_device) {
    text += fmt::format(
        "\n\"memory\" is what the host takes, \"device\" what the device does: weights, T0, "
        "{}staging, compute buffers; it has {}.\n",
        request.t2_on_device ? "T2, " : "",
        machine.limits.device_bytes == std::numeric_limits<uint64_t>::max()
            ? std::string("not said how much it has")
            : MiB(machine.limits.device_bytes));
  }
  const bool has_experts = question.model.expert_bytes > 0;
  uint64_t weights = question.model.weight_bytes;  // and, where it is mapped, the lookup table
  for (const Row& row : rows) {
    if (row.bytes.ok()) weights = row.bytes->weights;
  }
  text += fmt::format(
      "\nIn every row: weights {} MiB{}, program {} MiB, compute buffers. \"context\" is the "
      "longest "
      "that fits ({} were trained), \"requests\" the most at {} tokens.\n",
      InMiB(weights),
      has_experts
          ? fmt::format(", of which a token reads {} MiB", InMiB(WeightsRead(question.model, 1)))
          : std::string(),
      InMiB(question.model.program_bytes), model.shape().trained_context, request.context);
  const auto mapped = MappedOf(rows, request, machine);
  if (mapped.has_value()) {
    text += fmt::format(
        "Weights stay in the file where memory does not hold them: about {} MiB are resident, each "
        "step reads {} MiB from the disk, which allows {:.1f} tokens/s at most with the full "
        "cache.\n",
        InMiB(mapped->resident_bytes), InMiB(mapped->disk_bytes_per_step), mapped->tokens_per_s);
  }
  text += gentlest.ok() ? fmt::format("The gentlest that fits: {}", gentlest->name)
                        : TextWithOption(gentlest.status());
  return text;
}

// Returns the error that `ebb run --memory` would give: options with which no session opens, or
// without tiers a policy that cannot rank rows for them.
Status CheckThatItRuns(std::shared_ptr<const Model> model, const CliOptions& options) {
  SessionOptions session = options.session;
  if (!session.policy.tiers.has_value()) {
    // Without given tiers, the policy ranks rows for the tiers that --memory tries.
    EBB_RETURN_IF_ERROR(CheckPolicyOfTiers(*model, session.policy));
    session.policy = PolicySpec();
  }
  EBB_ASSIGN_OR_RETURN(const auto engine, Engine::Create(std::move(model), options.engine));
  return engine->OpenSession(session).status();
}

// Returns the settings that the table shows: the given tiers and the typical ones. With a policy
// that ranks rows, leaves out settings that place rows by position alone.
std::vector<FitSetting> SettingsOf(const FitRequest& request) {
  std::vector<FitSetting> settings;
  if (request.tiers.has_value()) settings.push_back({"as asked for", request.tiers});
  for (FitSetting& setting : TypicalSettings(request.on_device, request.t2_on_device)) {
    if (request.places_by_position || !PlacesByPosition(setting)) {
      settings.push_back(std::move(setting));
    }
  }
  return settings;
}

}  // namespace

Status RunFit(const CliOptions& options) {
  if (options.fit.measure && options.engine.device.kind == DeviceKind::kBackend) {
    return InvalidArgument("--measure: the speed of a device is not predicted; leave it out");
  }
  if (options.session.policy.budget.unit != Budget::Unit::kNone) {
    return InvalidArgument("--budget: tiers are counted, and no policy's budget; leave it out");
  }
  if (options.engine.kv_cap_bytes > 0 && !options.session.policy.tiers.has_value()) {
    return InvalidArgument(
        "--kv-cap: limits the full cache alone; give the limit as --memory, which counts the "
        "weights too");
  }
  EBB_ASSIGN_OR_RETURN(const std::shared_ptr<const Model> model, OpenModel(options));
  EBB_ASSIGN_OR_RETURN(FitModel measured, MeasureFitModel(*model));
  FitQuestion question = {
      .model = std::move(measured),
      .request = FitRequestOf(*model, options.engine, options.session, options.fit.prompt_tokens)};
  EBB_RETURN_IF_ERROR(CheckThatItRuns(model, options));
  question.request.requests = options.fit.requests;
  EBB_ASSIGN_OR_RETURN(const Machine machine, MeasureMachine(model, options));
  std::vector<Row> rows;
  for (FitSetting& setting : SettingsOf(question.request)) {
    rows.push_back(Judge(question, machine, std::move(setting)));
  }
  const auto gentlest = GentlestSetting(question.model, question.request, machine.limits);

  Json record = {{"model", model->description()},
                 {"context", question.request.context},
                 {"prompt_tokens", question.request.prompt_tokens},
                 {"requests", question.request.requests},
                 {"kv_type", RowTypeName(question.request.kv_type)},
                 {"measured",
                  {{"memory_gb_s", machine.speeds.memory_gb_s},
                   {"disk_gb_s", machine.speeds.disk_gb_s},
                   {"program_bytes", question.model.program_bytes},
                   {"memory_limit_bytes", machine.limits.memory_bytes},
                   {"disk_limit_bytes", machine.limits.disk_bytes},
                   {"threads", machine.threads}}},
                 {"settings", Json::array()},
                 {"gentlest", gentlest.ok() ? Json(gentlest->name) : Json()}};
  if (machine.speeds.step_seconds > 0) {
    record["measured"]["step_s"] = machine.speeds.step_seconds;
    record["measured"]["full_rows_gb_s"] = machine.speeds.full_rows_gb_s;
    for (const auto& [type, rate] : machine.speeds.compressed_rows_gb_s) {
      record["measured"][fmt::format("{}_rows_gb_s", CompressedTypeName(type))] = rate;
    }
  }
  if (question.request.on_device) {
    record["measured"]["device_limit_bytes"] = machine.limits.device_bytes;
  }
  record["active_weight_bytes"] = WeightsRead(question.model, 1);
  const auto mapped = MappedOf(rows, question.request, machine);
  if (mapped.has_value()) {
    record["mapped_weights"] = {{"resident_bytes", mapped->resident_bytes},
                                {"disk_bytes_per_step", mapped->disk_bytes_per_step},
                                {"tokens_per_s", mapped->tokens_per_s}};
  }
  for (const Row& row : rows) record["settings"].push_back(ToJson(row));
  EBB_RETURN_IF_ERROR(
      WriteRecord(options, record, Text(*model, question, machine, rows, gentlest)));
  // The exit code says whether the given tiers fit; without given tiers, whether any row of the
  // table does.
  if (options.session.policy.tiers.has_value()) return rows.front().fits;
  return gentlest.ok() ? OkStatus() : gentlest.status();
}

}  // namespace ebb::cli
