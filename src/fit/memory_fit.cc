#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "ebb/fit.h"
#include "ebb/status.h"
#include "ebb/types.h"
#include "src/attention/decode_states.h"
#include "src/attention/prefill.h"
#include "src/attention/rows.h"
#include "src/attention/trellis.h"
#include "src/base/checkpoints.h"
#include "src/base/text/size_text.h"
#include "src/kv/sequence_cache.h"
#include "src/policy/row_scores.h"
#include "src/policy/selectors.h"
#include "src/policy/tier_forecast.h"
#include "src/rows/arena.h"
#include "src/rows/compressed_pages.h"
#include "src/rows/page_loader.h"
#include "src/rows/rows_under_caps.h"
#include "src/rows/t1_edits.h"
#include "src/rows/t1_page_cache.h"
#include "src/rows/t1_stage.h"
#include "src/rows/tier_rows.h"
#include "src/sequence/checkpoint_plan.h"
#include "src/sequence/roll_back.h"
#include "src/step/cpu/cpu_step.h"
#include "src/step/cpu/merged_rows.h"
#include "src/step/device/backend_attention.h"
#include "src/step/work/recurrent_state.h"
#include "src/step/work/signal_buffers.h"

namespace ebb {
namespace {

// kShareSelected is the share of T1's rows that a token reads under selective reading with the
// default mass, as measured (docs/figures/performance.md). kShareThatHoldsAllReads is the share of
// T1's pages held in memory from which on hardly any page is read from the file.
constexpr double kShareSelected = 0.4;
// kShareThatHoldsAllReads is the share of T1's pages that must be in memory so that hardly any page
// is read from the file.
constexpr double kShareThatHoldsAllReads = 0.55;

Status CheckRequest(const FitModel& model, const FitRequest& request) {
  const ModelShape& shape = model.shape;
  const bool shape_ok =
      shape.num_layers > 0 && shape.num_kv_heads > 0 && shape.num_q_heads > 0 && shape.head_dim > 0;
  if (!shape_ok) return InvalidArgument("the model's layers, heads and head size are not known");
  if (shape.SmallestWindow() > 0 && request.tiers.has_value()) {
    return Unsupported(
        "the memory of tiers cannot be computed for models with sliding windows, whose rows leave "
        "every tier");
  }
  if (PageFormat::Of(shape, request.kv_type).PageBytes() > kExtentBytes) {
    return InvalidArgument(fmt::format("a page of rows with a head size of {} is larger than {}",
                                       shape.head_dim, SizeText(kExtentBytes)));
  }
  if (request.context < 1 || request.requests < 1 || request.prompt_tokens < 0 ||
      request.interval < 1) {
    return InvalidArgument(fmt::format(
        "expected at least 1 request, 1 token of context, 0 of the prompt and an interval of 1, "
        "found {}, {}, {} and {}",
        request.requests, request.context, request.prompt_tokens, request.interval));
  }
  if (request.tiers.has_value() && request.tiers->engine.t2_type.has_value()) {
    EBB_RETURN_IF_ERROR(
        CheckCompressedType(*request.tiers->engine.t2_type, shape.head_dim, request.on_device));
  }
  if (request.kv_cap_bytes > 0 && request.tiers.has_value() &&
      (request.tiers->engine.t1 != T1Place::kNone || !CompressesOldRows(request.tiers->shares))) {
    return InvalidArgument(
        "kv_cap_bytes",
        "a cap on the cache cannot be combined with these tiers, which take caps on T0 and T1; a "
        "compressed cache without a T1 takes it");
  }
  return OkStatus();
}

// Returns ForecastRows() for the request; without tiers all rows that stay are in T0.
Result<RowsOverTime> FollowRows(const ModelShape& shape, const FitRequest& request) {
  ForecastRequest forecast = {.prompt_tokens = static_cast<size_t>(request.prompt_tokens),
                              .most_tokens = static_cast<size_t>(request.context),
                              .retention = request.retention.get(),
                              .chunk_tokens = static_cast<size_t>(request.prefill_chunk),
                              .sinks = request.sinks,
                              .window = request.window,
                              .interval = request.interval};
  if (request.tiers.has_value()) {
    TierSetting tiers = *request.tiers;
    tiers.engine.t0_cap_bytes /= request.requests;  // an even share
    tiers.engine.t1_cap_bytes /= request.requests;
    const size_t page_bytes = PageFormat::Of(shape, request.kv_type).PageBytes();
    if (const auto num_rows = RowsOfSelectiveStep(tiers, static_cast<size_t>(request.context))) {
      EBB_RETURN_IF_ERROR(CheckCapOfSelection(tiers.engine, shape, page_bytes, *num_rows));
    }
    forecast.tiers = tiers;
    forecast.rows_available = RowsUnderCaps(tiers.engine, shape, page_bytes);
    return ForecastRows(forecast);
  }
  return RetainedRows(forecast);
}

int ChunkTokens(const FitRequest& request) {
  return std::min({request.prompt_tokens, request.prefill_chunk, request.context});
}

// Returns whether a prompt's buffers are freed before the cache is at its largest. They are still
// allocated when the first generated token's rows are added.
bool BuffersGoBack(const FitRequest& request) {
  return !request.prompts_at_any_time && request.context > request.prompt_tokens + 1 &&
         request.requests <= kTokensInKeptBuffers && ChunkTokens(request) > kTokensInKeptBuffers;
}

// Returns the memory of a step's graph as libllama planned it. A model that is not loaded has no
// plan; for it the result is estimated: the residual stream and two copies of it, the gate, up
// projection and product of the widest feed-forward layer, queries, keys and values, and the widest
// input that products convert to F16 if weights have that type.
FitGraph GraphOf(const FitModel& model) {
  if (model.graph.has_value()) return *model.graph;
  const ModelShape& shape = model.shape;
  const uint64_t embed_dim = shape.embed_dim, feed_forward_dim = model.feed_forward_dim;
  const uint64_t heads = shape.num_q_heads + uint64_t{2} * shape.num_kv_heads;
  const uint64_t floats = 3 * (embed_dim + feed_forward_dim) + shape.head_dim * heads;
  const uint64_t converted = sizeof(uint16_t) * std::max(embed_dim, feed_forward_dim);
  return {.bytes_per_token = floats * sizeof(float) - converted,
          .converted_bytes_per_token = converted};
}

// MemoryOf adds up the bytes that the parts of an engine say they need for a request.
class MemoryOf {
 public:
  // Takes `rows`, the rows of one sequence over time.
  MemoryOf(const FitModel& model, const FitRequest& request, const RowsOverTime& rows)
      : model_(model), request_(request), rows_(rows) {
    compressed_.in_ggml_blocks = request.on_device && request.t2_in_ggml_blocks;
  }

  // Returns the bytes of the rows in all tiers, and nothing else.
  [[nodiscard]] FitBytes Rows() const {
    FitBytes bytes = {.on_device = request_.on_device,
                      .t2_on_device = request_.on_device && request_.t2_on_device,
                      .t2_type = compressed_.type};
    // Rows that leave a tier leave holes in its pages, which compaction fills only in later steps,
    // so each stream may hold a page more.
    const bool rows_leave = rows_.peaks.t1 + rows_.peaks.t2 > 0 || tiers_.shares.evict_share > 0 ||
                            request_.retention != nullptr;
    bytes.t0 = Arena::BytesFor(requests_ * (T0Pages() + (rows_leave ? shape_.NumStreams() : 0)),
                               format_.PageBytes());
    if (tiers_.engine.t0_cap_bytes > 0) {
      bytes.t0 = std::min(bytes.t0, tiers_.engine.t0_cap_bytes / kExtentBytes * kExtentBytes);
    }
    (in_file_ ? bytes.t1_disk : bytes.t1_memory) =
        BytesOfPages(shape_, format_.PageBytes(), in_file_, requests_ * PagesFor(rows_.peaks.t1));
    bytes.t2 = BytesOfPages(
        shape_,
        bytes.t2_on_device ? CompressedPageBytesOnDevice(compressed_) : compressed_.PageBytes(),
        /*in_file=*/false, requests_ * PagesFor(rows_.peaks.t2));
    return bytes;
  }

  // Returns the bytes of a draft model with its caches and buffers. Errors: those of
  // FitRequestInto() the draft model.
  [[nodiscard]] Result<uint64_t> DraftBytes() const {
    if (model_.draft == nullptr) return uint64_t{0};
    // Each sequence holds the rows of a piece of a prompt as signals and for the head. The graph
    // holds them too, and so does a copy that the head reads; rows of several blocks are first put
    // together.
    const uint64_t copies = 2 * requests_ + (model_.draft_hidden_rows > 1 ? 3 : 2);
    const uint64_t hidden_bytes = copies * model_.draft_hidden_rows * request_.prefill_chunk *
                                  shape_.embed_dim * sizeof(float);
    if (model_.draft_reads_cache) {
      return hidden_bytes + model_.draft->weight_bytes + GraphOf(*model_.draft).bytes;
    }
    FitRequest request = {.context = request_.context,
                          .prompt_tokens = request_.prompt_tokens,
                          .requests = request_.requests,
                          .prefill_chunk = request_.prefill_chunk,
                          .threads = request_.threads,
                          .prompts_at_any_time = true,
                          .tiers = model_.draft_tiers};
    Result<FitBytes> bytes = FitRequestInto(*model_.draft, request);
    if (!bytes.ok()) return bytes.status().WithPrefix("the draft model");
    if (model_.draft_cap_bytes > 0) bytes->t0 = std::min(bytes->t0, model_.draft_cap_bytes);
    return bytes->Memory() + hidden_bytes;
  }

  // Adds the bytes of everything but rows to *bytes, in which Rows() has counted the rows. Errors:
  // those of DraftBytes().
  Status AddOthers(FitBytes* bytes) const {
    AddWeights(bytes);
    EBB_ASSIGN_OR_RETURN(bytes->draft, DraftBytes());
    AddT1Buffers(bytes);
    bytes->tables = requests_ * TableBytes();
    bytes->states = requests_ * model_.state_bytes * (1 + CheckpointsAfter(request_.prompt_tokens));
    if (request_.on_device) {
      const uint64_t others = bytes->t2_on_device ? bytes->t2 : 0;
      bytes->t0 = std::max(bytes->t0 + others, kLeastDeviceExtents * kExtentBytes) - others;
      bytes->compute = ComputeOnDevice();
    } else {
      bytes->states += StateBatchBytes(model_.state_bytes, requests_);
      if (request_.decode_tokens > 1) {
        bytes->states += requests_ * model_.state_bytes * request_.decode_tokens;
      }
      bytes->compute = ComputeOnHost();
      if (tiers_.engine.t2_type.has_value() && UsesKeyMetric(compressed_)) {
        bytes->compute += sizeof(float) * shape_.NumStreams() * KeyMetricFloats(shape_.head_dim);
      }
    }
    AddRowsRead(bytes);
    return OkStatus();
  }

 private:
  // Counts the checkpoints of a sequence that has read `num_tokens` tokens of its prompt.
  [[nodiscard]] size_t CheckpointsAfter(size_t num_tokens) const {
    const size_t most = MostCheckpoints(shape_, model_.state_bytes, format_.RowBytes());
    if (request_.prompts_at_any_time) return most;
    return std::min(most, MostCheckpointsIn(num_tokens, request_.prefill_chunk));
  }

  // Returns the most pages that T0 holds for a sequence: at its end, or, if sliding windows evict
  // rows, in the last chunk of the prompt, whose beginning is the newest checkpoint. Counts a page
  // more per window, since a window may begin and end within pages. On a device no rows are kept
  // for checkpoints.
  [[nodiscard]] uint64_t T0Pages() const {
    const auto pages = [&](size_t num_rows, size_t checkpoints, size_t num_new) {
      return WindowCheckpoints::MostRows(shape_, num_rows, request_.on_device ? 0 : checkpoints,
                                         num_new + kRowsPerPage, kRowsPerPage) /
             kRowsPerPage;
    };
    const size_t prompt = std::min(request_.prompt_tokens, request_.context);
    const uint64_t at_end = pages(rows_.peaks.t0, CheckpointsAfter(prompt), 0);
    if (shape_.SmallestWindow() == 0) return at_end;
    const size_t before = std::max<size_t>(CheckpointsAfter(prompt - chunk_), 1) - 1;
    return std::max(at_end, pages(prompt, before, chunk_));
  }

  // Adds the weights and the embeddings. The host looks embeddings up in the mapped file. Each
  // prompt token may bring a piece of that table into memory, of the size that the system maps at
  // once; generated tokens mostly repeat earlier ones and bring in little.
  void AddWeights(FitBytes* bytes) const {
    constexpr uint64_t kFaultAround = 64 << 10;
    const uint64_t looked_up =
        std::min(model_.lookup_bytes, kFaultAround * request_.prompt_tokens * requests_);
    bytes->weights = model_.weight_bytes;
    bytes->program = model_.program_bytes;
    (request_.on_device ? bytes->program : bytes->weights) += looked_up;
    bytes->weights_unread = model_.weight_bytes - WeightsRead(model_, request_.requests) +
                            (request_.on_device ? 0 : looked_up);
  }

  void AddT1Buffers(FitBytes* bytes) const {
    if (rows_.peaks.t1 == 0 || (!in_file_ && !request_.on_device)) return;
    const size_t page_bytes = format_.PageBytes(), of_stream = PagesFor(rows_.peaks.t1);
    const size_t of_layer = of_stream * shape_.num_kv_heads, all = of_stream * shape_.NumStreams();
    uint64_t at_steps = T1Stage::BytesFor(of_layer * page_bytes, request_.on_device);
    uint64_t on_host = 0;
    if (reads_selectively_) {
      const uint64_t cached =
          tiers_.engine.t0_cap_bytes > 0
              ? (tiers_.engine.t0_cap_bytes - bytes->t0) / requests_ / page_bytes
              : static_cast<uint64_t>(t0_share_ * static_cast<double>(all));
      // The stage and the page cache are never in use at the same time, so the larger one counts.
      at_steps = std::max(
          at_steps, T1PageCache::BytesFor(
                        {.capacity = std::min<uint64_t>(cached, all), .most_of_layer = of_layer},
                        page_bytes));
      const double selected = kShareSelected * static_cast<double>(of_layer * page_bytes);
      on_host = FileDevicePageLoader::BytesFor(static_cast<uint64_t>(selected));
    }
    if (in_file_) {
      (request_.on_device ? on_host : at_steps) += T1Edits::BytesFor(all * page_bytes, kEditBytes);
      on_host += T1Stage::BytesFor(of_layer * page_bytes, /*on_device=*/false);
    }
    bytes->staging = requests_ * at_steps;
    if (in_file_ && request_.on_device) bytes->staging_on_host = requests_ * on_host;
  }

  // Counts the bytes of the tables and scores of one sequence.
  [[nodiscard]] uint64_t TableBytes() const {
    const CacheLayout layout(shape_, request_.granularity, format_, compressed_, 0);
    uint64_t bytes = SequenceCache::TableBytesFor(
        layout,
        {.full_rows = rows_.last.t0 + rows_.last.t1,
         .full_pages = PagesFor(rows_.last.t0) + PagesFor(rows_.last.t1),
         .compressed_rows = rows_.last.t2,
         .compressed_pages = PagesFor(rows_.last.t2)},
        /*are_alike=*/!request_.tiers.has_value() && request_.retention == nullptr);
    // Layers with windows have tables of their own.
    for (const int window : shape_.windows) {
      if (window == 0) continue;
      const size_t rows = WindowCheckpoints::MostRows(
          window, all_rows_, CheckpointsAfter(request_.prompt_tokens), chunk_);
      bytes += GroupTable::BytesFor({.full_rows = rows, .full_pages = PagesFor(rows)}, 1);
    }
    if (is_ranked_) {
      bytes += RowScores::BytesFor(layout.num_groups(), all_rows_) +
               SignalBuffers::BytesFor(shape_, layout.num_groups(), all_rows_, 0);
    }
    if (!reads_selectively_) return bytes;
    return bytes +
           MassSelectorBytes({.shape = shape_, .reuse = tiers_.shares.t1_reuse}, request_.context) +
           SignalBuffers::BytesFor(shape_, 0, 0, chunk_) +
           (request_.on_device ? RankVectorBytes() : 0);
  }

  // Counts the rank vectors of one sequence. They lie on the device, and a second time on the host.
  [[nodiscard]] uint64_t RankVectorBytes() const {
    return RankMirror::BytesFor(shape_.NumStreams(), shape_.head_dim,
                                RankRoom::Of(kKeysOfMassSelector, PagesFor(request_.context)));
  }

  // Counts what guesses add to the steps of a sequence: their logits, which a session keeps a
  // second time, and a graph for each number of tokens.
  [[nodiscard]] uint64_t GuessBytes() const {
    constexpr uint64_t kGraphsOfGuesses = 7, kNodesPerLayer = uint64_t{72} << 10;
    const auto guesses = static_cast<uint64_t>(request_.decode_tokens - 1);
    if (guesses == 0) return 0;
    return 2 * sizeof(float) * shape_.vocab_size * guesses +
           kGraphsOfGuesses * kNodesPerLayer * shape_.num_layers;
  }

  // Counts the tensors of a step, the logits of each request and the nodes of the graphs.
  [[nodiscard]] uint64_t GraphBytes(uint64_t tokens) const {
    // kNodesPerLayer covers the nodes of the graphs that a generation needs, as measured with
    // SmolLM2.
    constexpr uint64_t kNodesPerLayer = uint64_t{64} << 10;
    return graph_.bytes + tokens * (graph_.bytes_per_token + graph_.converted_bytes_per_token) +
           sizeof(float) * shape_.vocab_size * requests_ + kNodesPerLayer * shape_.num_layers;
  }

  // Counts the compute buffers of a device. They have the size of the widest step and are not
  // freed.
  [[nodiscard]] uint64_t ComputeOnDevice() const {
    const bool sees_alike = shape_.SmallestWindow() == 0 &&
                            ((!request_.tiers.has_value() && request_.retention == nullptr) ||
                             shape_.NumGroups(request_.granularity) == 1);
    uint64_t bytes =
        GraphBytes(std::max<uint64_t>(chunk_, requests_)) + model_.state_bytes * requests_ +
        DeviceStepBytes(shape_, {.num_sequences = requests_,
                                 .num_rows = all_rows_,
                                 .prompt_tokens = chunk_,
                                 .is_uniform = sees_alike,
                                 .is_eager = request_.device_attention == DeviceAttention::kEager});
    if (reads_selectively_) bytes += requests_ * RankVectorBytes();
    if (!compressed_.in_ggml_blocks) return bytes;
    return bytes + GgmlRowBytes(compressed_, shape_.num_kv_heads, rows_.peaks.t2);
  }

  // Counts the compute buffers of the host while the cache is at its largest, in the widest step
  // then. Of a long prompt's buffers two kinds stay: those in which its products converted their
  // inputs, and those of attention.
  [[nodiscard]] uint64_t ComputeOnHost() const {
    const bool go_back = BuffersGoBack(request_);
    // Layers with the fewest kv heads read each row with the most query heads, which takes the
    // largest buffers.
    int kv_heads = shape_.num_kv_heads;
    for (const int heads : shape_.kv_heads_by_layer) kv_heads = std::min(kv_heads, heads);
    const AttentionShape attention = {
        .num_q_heads = shape_.num_q_heads, .num_kv_heads = kv_heads, .format = format_};
    const auto decoded = std::max<uint64_t>(requests_, request_.decode_tokens);
    uint64_t bytes = DecodeStates::BytesFor(attention, decoded, all_rows_, is_ranked_) +
                     GuessBytes() +
                     (go_back ? GraphBytes(decoded) + chunk_ * graph_.converted_bytes_per_token
                              : GraphBytes(std::max<uint64_t>(chunk_, decoded)));
    if (chunk_ <= 1) return bytes;
    // If no later prompts can come, attention to a chunk reads only the rows of the first prompt.
    const size_t prompt_rows = request_.prompts_at_any_time
                                   ? all_rows_
                                   : std::min<size_t>(all_rows_, request_.prompt_tokens);
    bytes += MostPrefillBytes(attention, static_cast<int>(chunk_), prompt_rows, request_.threads);
    if (go_back) return bytes;
    return bytes + requests_ * MergedRows::BytesFor(rows_.peaks.t2, shape_.num_kv_heads, format_);
  }

  void AddRowsRead(FitBytes* bytes) const {
    const uint64_t row_bytes = format_.RowBytes();
    const uint64_t streams = shape_.NumStreams() * requests_;
    double of_t1_read = 1, of_t1_from_disk = in_file_ ? 1 : 0;
    if (reads_selectively_) {
      of_t1_read = kShareSelected;
      of_t1_from_disk *= of_t1_read * std::max(0.0, 1 - t0_share_ / kShareThatHoldsAllReads);
    }
    const auto of_t1 = static_cast<double>(rows_.last.t1 * row_bytes * streams);
    const uint64_t of_t0 = WindowCheckpoints::MostRows(shape_, rows_.last.t0, 0, 0, 1) * row_bytes;
    bytes->rows_read_compressed = rows_.last.t2 * compressed_.RowStride() * streams;
    bytes->rows_read_memory =
        of_t0 * requests_ + bytes->rows_read_compressed + static_cast<uint64_t>(of_t1 * of_t1_read);
    bytes->rows_read_disk = static_cast<uint64_t>(of_t1 * of_t1_from_disk);
  }

  const FitModel& model_;
  const FitRequest& request_;
  const RowsOverTime rows_;
  const ModelShape& shape_ = model_.shape;
  const FitGraph graph_ = GraphOf(model_);
  const uint64_t requests_ = request_.requests;
  const size_t all_rows_ = rows_.last.t0 + rows_.last.t1 + rows_.last.t2;
  const size_t chunk_ = ChunkTokens(request_);
  const TierSetting tiers_ = request_.tiers.value_or(TierSetting());
  const double t0_share_ = tiers_.shares.t0_share.value_or(kDefaultT0Share);
  const bool in_file_ = LiesInFile(tiers_.engine);
  const bool reads_selectively_ = ReadsSelectively(tiers_.shares);
  // is_ranked_ is true if a scorer ranks rows by their mass.
  const bool is_ranked_ = (request_.retention != nullptr && request_.retention->NeedsScores()) ||
                          (request_.tiers.has_value() && !PlacesByPosition({.tiers = tiers_}));
  const PageFormat format_ = PageFormat::Of(shape_, request_.kv_type);
  CompressedFormat compressed_ =
      CompressedFormat::Of(format_, tiers_.engine.t2_type.value_or(kDefaultT2Type));
};

}  // namespace

uint64_t WeightsRead(const FitModel& model, int num_tokens) {
  const double unread = std::pow(1 - model.expert_share, num_tokens);
  return model.weight_bytes -
         static_cast<uint64_t>(static_cast<double>(model.expert_bytes) * unread);
}

Result<FitBytes> FitRequestInto(const FitModel& model, const FitRequest& request) {
  EBB_RETURN_IF_ERROR(CheckRequest(model, request));
  EBB_ASSIGN_OR_RETURN(const RowsOverTime rows, FollowRows(model.shape, request));
  const MemoryOf memory(model, request, rows);
  FitBytes bytes = memory.Rows();
  if (request.kv_cap_bytes > 0 && bytes.t0 + bytes.t2 > request.kv_cap_bytes) {
    const ComparedSizes sizes(request.kv_cap_bytes, bytes.t0 + bytes.t2);
    return T0Full(
        fmt::format("the cap on the cache is {}, and its rows take {}", sizes.first, sizes.second));
  }
  EBB_RETURN_IF_ERROR(memory.AddOthers(&bytes));
  if (request.on_device || !BuffersGoBack(request)) return bytes;
  // While a long prompt is read, its buffers may take more memory than the rows that the generation
  // adds later.
  FitRequest prompt = request;
  prompt.context = request.prompt_tokens + 1;
  EBB_ASSIGN_OR_RETURN(const FitBytes at_prompt, FitRequestInto(model, prompt));
  bytes.compute += std::max(at_prompt.Memory(), bytes.Memory()) - bytes.Memory();
  return bytes;
}

}  // namespace ebb
