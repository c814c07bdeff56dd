// Predicts the bytes of a model, a context and tiers before anything runs, and finds the gentlest
// setting that fits.
//
// The arithmetic is pure. What depends on the machine is measured by the functions at the end, and
// handed in.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_FIT_H_
#define EBB_FIT_H_

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "ebb/device.h"
#include "ebb/engine.h"
#include "ebb/model.h"
#include "ebb/policy.h"
#include "ebb/status.h"
#include "ebb/tiers.h"
#include "ebb/types.h"

namespace [[gnu::visibility("default")]] ebb {

// The memory of a step's graph, as it was planned for a loaded model.
struct FitGraph {
  uint64_t bytes = 0;                      // of a step of any size
  uint64_t bytes_per_token = 0;            // of the step, besides
  uint64_t converted_bytes_per_token = 0;  // that products multiply by weights; kept between steps
};

struct FitModel {
  ModelShape shape;
  int feed_forward_dim = 0;
  uint64_t weight_bytes = 0;   // as held in memory
  uint64_t expert_bytes = 0;   // of them, those of a mixture's experts
  double expert_share = 1;     // of the experts, that a token is computed with
  uint64_t lookup_bytes = 0;   // of a table in the mapped file, of which tokens bring pieces in
  uint64_t state_bytes = 0;    // recurrent state of a sequence
  uint64_t program_bytes = 0;  // resident besides: the program, the tokenizer; measured
  // Nothing for ebb's own decoder, whose graph is computed from the shape.
  std::optional<FitGraph> graph = {};
};
// The weights that a step of so many tokens reads, of a mixture those of the experts that each
// token chooses, which are taken to be chosen independently.
[[nodiscard]] uint64_t WeightsRead(const FitModel& model, int num_tokens);
// program_bytes is left at 0. Errors: those of libllama's builders of graphs.
[[nodiscard]] Result<FitModel> FitModelOf(const Model& model);

struct FitRequest {
  int context = 0;        // tokens of each sequence
  int prompt_tokens = 0;  // of them, those that are given, which never leave full precision
  int requests = 1;       // sequences at once, stepped as one batch
  RowType kv_type = RowType::kF16;
  uint64_t kv_cap_bytes = 0;  // as EngineOptions
  int prefill_chunk = 512;
  int threads = 1;
  // Whether a prompt may come while the cache is at its largest, as in a chat. Else its buffers
  // have gone back to the system then.
  bool prompts_at_any_time = false;
  std::optional<TierSpec> tiers = {};  // none: the full cache
  int sinks = kDefaultSinks;
  int window = kDefaultWindow;
  int interval = kDefaultInterval;
  // At which rows are chosen: groups that lose different rows have a table each.
  Granularity granularity = Granularity::kToken;
  // Whether rows may be placed by position alone, as selective reading and T2 of all old rows place
  // them: no policy, and no number of it, was asked for.
  bool places_by_position = true;
  // Weights, T0 and what steps take lie in a device's memory, the rest in the host's.
  bool on_device = false;
  DeviceAttention device_attention = DeviceAttention::kAuto;  // with on_device
  bool t2_on_device = false;  // with on_device: T2 lies in the device's memory too
  // With t2_on_device: as rows of ggml's quantised types, which operations of ggml read.
  bool t2_in_ggml_blocks = false;
};

struct FitBytes {
  uint64_t weights = 0;
  uint64_t program = 0;
  uint64_t compute = 0;  // buffers of the graph and of attention
  uint64_t t0 = 0;
  uint64_t t1_memory = 0;
  uint64_t t1_disk = 0;
  uint64_t t2 = 0;
  uint64_t tables = 0;
  uint64_t states = 0;   // recurrent states and their checkpoints
  uint64_t staging = 0;  // into which T1 is read and in which it is edited
  // Buffers in the host's memory that pages of T1's file pass through on their way to a device.
  uint64_t staging_on_host = 0;
  bool on_device = false;
  bool t2_on_device = false;
  // The weights that a step does not read: experts that no token chooses, and the lookup table.
  uint64_t weights_unread = 0;
  // Bytes of rows that the last step reads, holes left out. Selective reading reads the share of
  // T1 that was measured (docs/figures/performance.md).
  uint64_t rows_read_memory = 0;
  uint64_t rows_read_disk = 0;        // of them, first from a file
  uint64_t rows_read_compressed = 0;  // of them, from T2, whose rows have the type t2_type
  CompressedType t2_type = CompressedType::kInt8;

  // Bytes of the host's memory.
  [[nodiscard]] uint64_t Memory() const {
    const uint64_t rest =
        program + t1_memory + (t2_on_device ? 0 : t2) + tables + states + staging_on_host;
    return on_device ? rest : rest + weights + compute + t0 + staging;
  }
  [[nodiscard]] uint64_t DeviceMemory() const {
    return on_device ? weights + compute + t0 + staging + (t2_on_device ? t2 : 0) : 0;
  }
};

// Peaks over the whole generation. T0Full, saying which, when the caps of the request do
// not hold what must stay; InvalidArgument for sizes that no model has.
[[nodiscard]] Result<FitBytes> FitRequestInto(const FitModel& model, const FitRequest& request);

struct FitLimits {
  uint64_t memory_bytes = std::numeric_limits<uint64_t>::max();
  uint64_t disk_bytes = std::numeric_limits<uint64_t>::max();
  uint64_t device_bytes = std::numeric_limits<uint64_t>::max();
};
// Whether memory, disk and device hold it: OutOfMemory or StorageFull with the figures when not.
[[nodiscard]] Status CheckFit(const FitBytes& bytes, const FitLimits& limits);

// The most tokens that fit, and the most sequences of request.context; 0: not even one.
[[nodiscard]] int LargestContext(const FitModel& model, FitRequest request,
                                 const FitLimits& limits);
[[nodiscard]] int MostRequests(const FitModel& model, FitRequest request, const FitLimits& limits);

struct FitSpeeds {
  double memory_gb_s = 0;  // read, 10^9 bytes a second
  double disk_gb_s = 0;    // 0: unknown
  // The seconds of a decode step of all sequences without rows; 0: not measured.
  double step_seconds = 0;
  // The rates at which attention reads rows. REQUIRED with step_seconds.
  double full_rows_gb_s = 0;
  std::map<CompressedType, double> compressed_rows_gb_s = {};
};
// Tokens a second, all sequences together; 0 when a speed that it needs is unknown. With
// step_seconds: a prediction; a T1 in a file is read while the step computes. Else a
// bound by the bandwidths: weights once a step, every row once.
[[nodiscard]] double TokensPerSecond(const FitBytes& bytes, int requests, const FitSpeeds& speeds);

// Weights that memory does not hold: the system keeps a part of the mapped file, and reads the rest
// for each step.
struct MappedWeights {
  uint64_t resident_bytes = 0;
  uint64_t disk_bytes_per_step = 0;
  double tokens_per_s = 0;  // at most, at the disk's bandwidth; 0: unknown
};
// bytes: of a setting that fits but for its weights. Nothing: the weights fit too.
[[nodiscard]] std::optional<MappedWeights> FitMappedWeights(const FitBytes& bytes,
                                                            const FitLimits& limits, int requests,
                                                            const FitSpeeds& speeds);

struct FitSetting {
  std::string name;                    // as it is typed: "--t1 none --t2 50%:int8"; "full"
  std::optional<TierSpec> tiers = {};  // none: the full cache
};
// Whether the setting places rows by their position alone, and no policy ranks them.
[[nodiscard]] bool PlacesByPosition(const FitSetting& setting);
// One of each kind, for a table. On a device T2 is among them only if it lies in its memory.
[[nodiscard]] std::vector<FitSetting> TypicalSettings(bool on_device = false,
                                                      bool t2_on_device = false);
// From the gentlest on: the full cache; all old rows in T2 as int8, int4 and int3; T1 in a file,
// read selectively and then wholly, at falling shares of T0; evicting. On a device: the full cache;
// T2 in its memory; T1 in the host's memory, and in a file, at falling shares of T0; evicting.
[[nodiscard]] std::vector<FitSetting> SettingsByGentleness(bool on_device = false,
                                                           bool t2_on_device = false);
// The first of them that fits, and that places_by_position allows; OutOfMemory with the least
// memory that is needed when none.
[[nodiscard]] Result<FitSetting> GentlestSetting(const FitModel& model, const FitRequest& request,
                                                 const FitLimits& limits);

// Measured: the reading speed of the folder's disk, 10^9 bytes a second; writes 64 MiB for it.
// `folder` as TierSpec::t1_path, here and below. Errors: those of files without a name.
[[nodiscard]] Result<double> MeasureDiskRead(const std::string& folder);
[[nodiscard]] Result<uint64_t> FreeDiskBytes(const std::string& folder);
// That a process could still take without swapping, by the system's own estimate.
[[nodiscard]] Result<uint64_t> AvailableMemoryBytes();

// From a size of memory to tiers: what a process may take, and the gentlest setting that stays
// within it.
//
//   EBB_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanMemory(*model, request, engine, session));
//   engine.tiers = session.policy.tiers = plan.setting.tiers;

// FitModelOf() with program_bytes as this process has them, which has just loaded the model. They
// are rounded so that another run of the same program gives the same number. Errors: as
// FitModelOf().
[[nodiscard]] Result<FitModel> MeasureFitModel(const Model& model);

// The request of these options: one sequence of the session's whole context, `prompt_tokens` of
// which are given.
[[nodiscard]] FitRequest FitRequestOf(const Model& model, const EngineOptions& engine,
                                      const SessionOptions& session, int prompt_tokens);

struct MemoryRequest {
  // That the process may take, the weights among them; above 0. Beside a device of ggml's: of its
  // memory, while the host's is all of the machine's.
  uint64_t memory_bytes = 0;
  // Tokens that are given, and that may follow; -1: as many as the context holds. Where both
  // together stay below the context, that is all that must fit.
  int prompt_tokens = 0;
  int max_tokens = -1;
  bool prompts_at_any_time = false;  // as in FitRequest
};

struct MemoryPlan {
  FitSetting setting;      // "as asked for" where the options have tiers
  bool is_chosen = false;  // rather than asked for
  int context = 0;         // tokens that were planned for
  FitBytes bytes;
  FitLimits limits;
};

// Checks that the options' tiers fit, or chooses the gentlest setting that does; what lies on a
// disk has the room that T1's folder has. Errors: OutOfMemory (nothing fits, with the least
// memory that is needed; the tiers do not fit, with the figures and the field memory_bytes where it
// is that limit); StorageFull (T1 does not fit); InvalidArgument, by the name of a field:
// memory_bytes with a lossless session, with re-rotated keys, with a budget, or with kv_cap_bytes
// where tiers are chosen; kv_cap_bytes with tiers.
[[nodiscard]] Result<MemoryPlan> PlanMemory(const Model& model, const MemoryRequest& request,
                                            const EngineOptions& engine,
                                            const SessionOptions& session);

}  // namespace ebb

#endif  // EBB_FIT_H_
