// Predicts the bytes that a model, a context and tiers take, before anything runs, and finds the
// setting that fits with the least loss.
//
// The predictions are pure arithmetic. The functions at the end measure what depends on the
// machine; callers pass the results to the others.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_FIT_H_
#define EBB_FIT_H_

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
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

// FitGraph holds the memory of a step's graph from libllama's builders, as planned for a loaded
// model.
struct FitGraph {
  uint64_t bytes = 0;            // bytes of a step of any size
  uint64_t bytes_per_token = 0;  // further bytes for each token of the step
  // of activations converted for products with weights; kept between steps
  uint64_t converted_bytes_per_token = 0;
};

// FitModel holds the sizes of a model that decide how much memory it takes, in bytes.
struct FitModel {
  ModelShape shape;
  int feed_forward_dim = 0;
  uint64_t weight_bytes = 0;  // as held in memory
  uint64_t expert_bytes = 0;  // the part of weight_bytes that a mixture's experts take
  double expert_share = 1;    // the share of the experts that computes a token
  // Counts a table in the mapped file, of which each token reads a piece.
  uint64_t lookup_bytes = 0;
  uint64_t state_bytes = 0;    // recurrent state of a sequence
  uint64_t program_bytes = 0;  // resident besides: the program, the tokenizer; measured
  // Holds the memory of the graph; nothing if the graph was not planned: the estimate then follows
  // from the shape.
  std::optional<FitGraph> graph = {};
  // Holds the sizes of a draft model, of which each sequence has a cache too, and the tiers of
  // these caches; null: there is none.
  std::shared_ptr<const FitModel> draft = {};
  // Counts the hidden rows of each token that sequences keep for `draft`, if it is a head (an MTP
  // layer, whose weights are counted with the model's, or one of a file of its own); 0: it is none.
  int draft_hidden_rows = 0;
  // Declares that `draft` has no cache of its own, since it reads that of the model.
  bool draft_reads_cache = false;
  std::optional<TierSetting> draft_tiers = {};
  uint64_t draft_cap_bytes = 0;  // of the draft's T0; 0: it has none
};
// Returns the bytes of weights that a step of `num_tokens` tokens reads. In a mixture of experts
// these include the experts that the tokens choose, on the assumption that tokens choose
// independently.
[[nodiscard]] uint64_t WeightsRead(const FitModel& model, int num_tokens);
// Returns the sizes of a loaded model; program_bytes is 0. Errors: those of libllama's builders of
// graphs.
[[nodiscard]] Result<FitModel> FitModelOf(const Model& model);

// Stands for the given tokens of a conversation, in place of their number: prompts come at any
// time, and are half of the context together.
inline constexpr int kPromptsOfConversation = -1;

// FitRequest describes what is to run: contexts, sequences, tiers and a policy's numbers.
struct FitRequest {
  int context = 0;        // tokens of each sequence
  int prompt_tokens = 0;  // the given ones among them, which never leave full precision
  int requests = 1;       // sequences at once, stepped as one batch
  RowType kv_type = RowType::kF16;
  uint64_t kv_cap_bytes = 0;  // as EngineOptions
  int prefill_chunk = 512;
  int threads = 1;
  // Declares whether a prompt may come while the cache is at its largest, which happens in a chat.
  // Otherwise the buffers of prefill count as freed by then.
  bool prompts_at_any_time = false;
  std::optional<TierSetting> tiers = {};  // none: the full cache
  int sinks = kDefaultSinks;
  int window = kDefaultWindow;
  int interval = kDefaultInterval;
  // Sets the granularity at which rows are chosen; groups that lose different rows have a table
  // each.
  Granularity granularity = Granularity::kToken;
  // Allows settings that place rows by position alone (selective reading, T2 of all old rows).
  // False if the user asked for a policy or for one of its numbers.
  bool places_by_position = true;
  // Declares whether weights, T0 and compute buffers are in a device's memory, the rest in the
  // host's.
  bool on_device = false;
  DeviceAttention device_attention = DeviceAttention::kAuto;  // with on_device
  bool t2_on_device = false;  // with on_device: T2 lies in the device's memory too
  // With t2_on_device: declares that T2 holds rows of ggml's quantized types, which operations of
  // ggml read.
  bool t2_in_ggml_blocks = false;
  // Sets the most tokens of a step that decodes one sequence: with guesses, more than one.
  int decode_tokens = 1;
  // Evicts rows before the tiers place those that stay: a policy with a budget, or a model's marks.
  // Null: no policy evicts.
  std::shared_ptr<const Placement> retention = {};

  // Sets the context, and of its tokens up to `given` ones, or kPromptsOfConversation.
  void SetContext(int tokens, int given);
};

// FitBytes holds the predicted bytes of each part, and the bytes that a step reads.
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
  uint64_t draft = 0;    // a draft model with its caches and buffers
  uint64_t staging = 0;  // into which T1 is read and in which it is edited
  // Counts buffers in the host's memory that pages of T1's file pass through on their way to a
  // device.
  uint64_t staging_on_host = 0;
  bool on_device = false;
  bool t2_on_device = false;
  // Counts the weights that a step does not read: experts that no token chooses, and the lookup
  // table.
  uint64_t weights_unread = 0;
  // Counts the bytes of rows that the last step reads, holes excluded. For selective reading it
  // assumes the share of T1 that was measured (docs/figures/performance.md).
  uint64_t rows_read_memory = 0;
  uint64_t rows_read_disk = 0;        // the part of them that is first read from a file
  uint64_t rows_read_compressed = 0;  // the part that T2 holds, in the type t2_type
  CompressedType t2_type = CompressedType::kInt8;

  // Returns the bytes of the host's memory.
  [[nodiscard]] uint64_t Memory() const {
    const uint64_t rest =
        program + draft + t1_memory + (t2_on_device ? 0 : t2) + tables + states + staging_on_host;
    return on_device ? rest : rest + weights + compute + t0 + staging;
  }
  // Returns the bytes of the device's memory; 0 without an accelerator.
  [[nodiscard]] uint64_t DeviceMemory() const {
    return on_device ? weights + compute + t0 + staging + (t2_on_device ? t2 : 0) : 0;
  }
};

// Predicts the peak bytes over the whole generation. Errors: T0Full if the caps of the request do
// not hold what must stay, naming the cap; InvalidArgument for sizes that no model has.
[[nodiscard]] Result<FitBytes> FitRequestInto(const FitModel& model, const FitRequest& request);

// FitLimits holds the bytes that may be taken of the host's memory, the disk and the device's
// memory.
struct FitLimits {
  uint64_t memory_bytes = std::numeric_limits<uint64_t>::max();
  uint64_t disk_bytes = std::numeric_limits<uint64_t>::max();
  uint64_t device_bytes = std::numeric_limits<uint64_t>::max();
};
// Checks that memory, disk and device hold the bytes. Errors, with the figures: OutOfMemory or
// StorageFull.
[[nodiscard]] Status CheckFit(const FitBytes& bytes, const FitLimits& limits);

// LargestContext() returns the most tokens that fit, MostRequests() the most sequences of
// request.context tokens; 0: not even one.
[[nodiscard]] int LargestContext(const FitModel& model, FitRequest request,
                                 const FitLimits& limits);
[[nodiscard]] int MostRequests(const FitModel& model, FitRequest request, const FitLimits& limits);

// FitSpeeds holds measured speeds of the machine, from which TokensPerSecond() predicts.
struct FitSpeeds {
  double memory_gb_s = 0;  // read, 10^9 bytes a second
  double disk_gb_s = 0;    // 0: unknown
  // Gives the seconds of a decode step of all sequences without reading rows; 0: not measured.
  double step_seconds = 0;
  // Gives the rate at which attention reads full rows, and below compressed rows, in 10^9 bytes a
  // second. REQUIRED with step_seconds.
  double full_rows_gb_s = 0;
  std::map<CompressedType, double> compressed_rows_gb_s = {};
};
// Returns tokens a second of all sequences together; 0 if a speed that it needs is unknown. With
// step_seconds it is a prediction, in which a T1 in a file is read while the step computes.
// Otherwise it is a bound by the bandwidths: each step reads the weights once and every row once.
[[nodiscard]] double TokensPerSecond(const FitBytes& bytes, int requests, const FitSpeeds& speeds);

// MappedWeights describes weights that memory does not hold: the system caches a part of the mapped
// file, and reads the rest from disk for each step.
struct MappedWeights {
  uint64_t resident_bytes = 0;
  uint64_t disk_bytes_per_step = 0;
  double tokens_per_s = 0;  // an upper bound by the disk's bandwidth; 0: unknown
};
// Returns how weights that do not fit are read, for the `bytes` of a setting that fits without its
// weights; nothing: the weights fit too.
[[nodiscard]] std::optional<MappedWeights> FitMappedWeights(const FitBytes& bytes,
                                                            const FitLimits& limits, int requests,
                                                            const FitSpeeds& speeds);

// FitSetting is a choice of tiers with its name.
struct FitSetting {
  std::string name;                       // as on a command line: "--t1 none --t2 50%:int8"; "full"
  std::optional<TierSetting> tiers = {};  // none: the full cache
};
// Returns whether the setting places rows by position alone, without a policy that ranks them.
[[nodiscard]] bool PlacesByPosition(const FitSetting& setting);
// Returns whether the request's policy goes with the setting: settings that place rows by position
// need request.places_by_position, and with a retention no setting evicts or reads a part.
[[nodiscard]] bool IsAllowed(const FitSetting& setting, const FitRequest& request);
// Returns one setting of each kind, for a table. On a device T2 is included only if it lies in the
// device's memory.
[[nodiscard]] std::vector<FitSetting> TypicalSettings(int head_dim, bool on_device = false,
                                                      bool t2_on_device = false);
// Returns settings in the order of growing loss or cost: the full cache; all old rows in T2 as
// int8, int4, int3 and int2; T1 in a file, read selectively and then wholly, at falling shares of
// T0; evicting. On a device: the full cache; T2 in the device's memory; T1 in the host's memory,
// and in a file, at falling shares of T0; evicting.
[[nodiscard]] std::vector<FitSetting> SettingsByGentleness(int head_dim, bool on_device = false,
                                                           bool t2_on_device = false);
// Returns the first of SettingsByGentleness() that fits and IsAllowed().
// Errors: OutOfMemory with the least memory that is needed, if none fits.
[[nodiscard]] Result<FitSetting> GentlestSetting(const FitModel& model, const FitRequest& request,
                                                 const FitLimits& limits);

// Measures the reading speed of the folder's disk in 10^9 bytes a second; writes 64 MiB to do so.
// `folder` means what EngineTiers::t1_path means, here and below. Errors: those of private files.
[[nodiscard]] Result<double> MeasureDiskRead(const std::string& folder);
// Returns the free bytes of the folder's disk. Errors: IoError.
[[nodiscard]] Result<uint64_t> FreeDiskBytes(const std::string& folder);
// Returns the memory in bytes that a process could still allocate without swapping, by the system's
// own estimate.
[[nodiscard]] Result<uint64_t> AvailableMemoryBytes();

// The functions below turn a size of memory into tiers: they compute what a process takes, and find
// the gentlest setting within the limit.
//
//   EBB_ASSIGN_OR_RETURN(const MemoryPlan plan, PlanMemory(*model, request, engine, session));
//   SetTiers(plan.setting.tiers, &engine, &session);

// Measures FitModelOf() with the program_bytes of this process, which has just loaded the model and
// the draft model of `engine`, whose sizes it adds.
// Rounds program_bytes so that another run of the same program gives the same number. Errors: those
// of FitModelOf().
[[nodiscard]] Result<FitModel> MeasureFitModel(const Model& model,
                                               const EngineOptions& engine = {});

// ExpectedMarks selects the rows of which a forecast assumes that a model marks them: none, which
// no run exceeds, or as many as it was trained to mark (Model::trained_compression()).
enum class ExpectedMarks { kNone, kTrained };
// Returns the request of these options: one sequence that fills the session's whole context, with
// `prompt_tokens` given tokens, or kPromptsOfConversation. For a policy that no session could have
// it counts no evictions.
[[nodiscard]] FitRequest FitRequestOf(const Model& model, const EngineOptions& engine,
                                      const SessionOptions& session, int prompt_tokens,
                                      ExpectedMarks marks = ExpectedMarks::kNone);

// MemoryRequest asks PlanMemory() for a setting within a size of memory.
struct MemoryRequest {
  // Limits the memory of the process in bytes, weights included; above 0. With an accelerator it
  // limits the device's memory, and all of the host's memory may be used.
  uint64_t memory_bytes = 0;
  // Counts the tokens of the prompt; max_tokens is the most that may follow (-1: as many as the
  // context holds). If both together are below the context, only so many must fit. With
  // kPromptsOfConversation the whole context must fit.
  int prompt_tokens = 0;
  int max_tokens = -1;
  ExpectedMarks marks = ExpectedMarks::kNone;
};

// MemoryPlan is the setting that PlanMemory() checked or chose, with its predicted bytes.
struct MemoryPlan {
  FitSetting setting;      // "as asked for" where the options have tiers
  bool is_chosen = false;  // rather than asked for
  int context = 0;         // tokens that were planned for
  FitBytes bytes;
  FitLimits limits;
};

// Checks that the options' tiers fit, or chooses the gentlest setting that fits if the options have
// no tiers. A T1 in a file may take the free space of T1's folder. Errors: OutOfMemory (nothing
// fits, with the least memory that is needed; or the tiers do not fit, with the figures, and the
// field memory_bytes if that is the limit); StorageFull (T1 does not fit); InvalidArgument, naming
// a field: memory_bytes with a lossless session, with re-rotated keys, or with kv_cap_bytes where
// tiers are chosen; kv_cap_bytes with tiers.
[[nodiscard]] Result<MemoryPlan> PlanMemory(const Model& model, const MemoryRequest& request,
                                            const EngineOptions& engine,
                                            const SessionOptions& session);

}  // namespace ebb

#endif  // EBB_FIT_H_
