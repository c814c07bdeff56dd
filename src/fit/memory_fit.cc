#include "src/fit/memory_fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>

#include "src/attention/prefill.h"
#include "src/attention/rows.h"
#include "src/base/checkpoints.h"
#include "src/base/device_sizes.h"
#include "src/base/step_sizes.h"
#include "src/io/segment_table.h"
#include "src/rows/arena.h"
#include "src/rows/compressed_pages.h"
#include "src/rows/rows_under_caps.h"
#include "src/rows/tier_rows.h"

namespace ebb {
namespace {

// Selective reading with the default mass, as measured (docs/figures/performance.md): the share of
// T1's rows that a token reads, and the share of its pages in memory from which on hardly any is
// read from the file.
constexpr double kShareSelected = 0.4;
constexpr double kShareThatHoldsAllReads = 0.55;

size_t DivideUp(size_t a, size_t b) { return (a + b - 1) / b; }
uint64_t RoundUp(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

// Rows of all streams where layers without a window have so many, and others no more than their
// window, those of `checkpoints`, and `beyond` rows. `unit`: rows that are counted together.
uint64_t RowsOfStreams(const ModelShape& shape, size_t num_rows, size_t checkpoints, size_t beyond,
                       size_t unit) {
  uint64_t sum = 0;
  for (int layer = 0; layer < shape.num_layers; ++layer) {
    const size_t window = shape.Window(layer);
    const size_t rows =
        window == 0 ? num_rows : std::min(num_rows, (1 + checkpoints) * window + beyond);
    sum += uint64_t{DivideUp(rows, unit)} * unit * shape.NumKvHeads(layer);
  }
  return sum;
}

// An even share of the caps is each request's.
TierSpec TiersOfOne(const FitRequest& request) {
  TierSpec tiers = *request.tiers;
  tiers.t0_cap_bytes /= request.requests;
  tiers.t1_cap_bytes /= request.requests;
  return tiers;
}

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
    return InvalidArgument(
        fmt::format("a page of rows with a head size of {} is larger than {} bytes", shape.head_dim,
                    kExtentBytes));
  }
  if (request.context < 1 || request.requests < 1 || request.prompt_tokens < 0 ||
      request.interval < 1) {
    return InvalidArgument(fmt::format(
        "expected at least 1 request, 1 token of context, 0 of the prompt and an interval of 1, "
        "found {}, {}, {} and {}",
        request.requests, request.context, request.prompt_tokens, request.interval));
  }
  return OkStatus();
}

size_t NumCheckpoints(const FitModel& model, const FitRequest& request) {
  return MostCheckpoints(model.shape, model.state_bytes,
                         PageFormat::Of(model.shape, request.kv_type).RowBytes());
}

// The most rows of T0 in whole pages: at the end, or, where windows let rows go, in the last chunk
// of the prompt. The pages of a window begin and end anywhere.
uint64_t T0Rows(const FitModel& model, const FitRequest& request, size_t most_rows) {
  const ModelShape& shape = model.shape;
  // A device keeps none; in a chat earlier prompts have some.
  const bool has_prompt = request.prompt_tokens > 0 || request.prompts_at_any_time;
  const size_t checkpoints = has_prompt && !request.on_device ? NumCheckpoints(model, request) : 0;
  const size_t earlier = request.prompts_at_any_time ? checkpoints : 0;
  const uint64_t at_end = RowsOfStreams(shape, most_rows, checkpoints, kRowsPerPage, kRowsPerPage);
  if (shape.SmallestWindow() == 0) return at_end;
  const size_t prompt = std::min(request.prompt_tokens, request.context);
  const size_t chunk = std::min<size_t>(prompt, request.prefill_chunk);
  return std::max(at_end,
                  RowsOfStreams(shape, prompt, earlier, chunk + kRowsPerPage, kRowsPerPage));
}

int ChunkTokens(const FitRequest& request) {
  return std::min({request.prompt_tokens, request.prefill_chunk, request.context});
}

// Whether a prompt's buffers have gone when the cache is at its largest.
bool BuffersGoBack(const FitRequest& request) {
  return !request.prompts_at_any_time && request.requests <= kTokensInKeptBuffers &&
         ChunkTokens(request) > kTokensInKeptBuffers;
}

// A graph's tensors of a chunk of tokens at once: for ebb's own decoder the residual stream and two
// copies of it, and the widest layer's gate, up and product.
uint64_t TensorBytes(const FitModel& model, uint64_t tokens) {
  const ModelShape& shape = model.shape;
  if (model.graph.has_value()) {
    const FitGraph& graph = *model.graph;
    return graph.bytes + tokens * (graph.bytes_per_token + graph.converted_bytes_per_token);
  }
  const uint64_t attention =
      uint64_t{1} * shape.head_dim * (shape.num_q_heads + 2 * shape.num_kv_heads);
  const uint64_t floats =
      3 * uint64_t{1} * shape.embed_dim + 3 * uint64_t{1} * model.feed_forward_dim + attention;
  return tokens * floats * sizeof(float);
}

// Returns TensorBytes() plus the logits of each request and the nodes of the graphs.
uint64_t GraphBytes(const FitModel& model, const FitRequest& request, uint64_t tokens) {
  // The nodes of the graphs that a generation needs, measured with SmolLM2.
  constexpr uint64_t kNodesPerLayer = uint64_t{64} << 10;
  const uint64_t logits = uint64_t{1} * model.shape.vocab_size * request.requests;
  return TensorBytes(model, tokens) + logits * sizeof(float) +
         kNodesPerLayer * model.shape.num_layers;
}

// In the widest step while the cache is at its largest. Of a prompt's buffers those stay in which
// its products converted what they multiply.
uint64_t LastGraphBytes(const FitModel& model, const FitRequest& request) {
  const uint64_t chunk = ChunkTokens(request);
  if (!BuffersGoBack(request)) {
    return GraphBytes(model, request, std::max<uint64_t>(chunk, request.requests));
  }
  const uint64_t widest = std::max(model.shape.embed_dim, model.feed_forward_dim);
  constexpr uint64_t kMostBytes = 2;  // of a value: in F16, behind weights of that type
  const uint64_t converted =
      model.graph.has_value() ? model.graph->converted_bytes_per_token : widest * kMostBytes;
  return GraphBytes(model, request, request.requests) + chunk * converted;
}

// Partial results of chunks of rows, of even and of odd layers, with their weights where attention
// is scored.
uint64_t AttentionBytes(const ModelShape& shape, const FitRequest& request, size_t num_rows) {
  const uint64_t states = uint64_t{1} * shape.num_q_heads * DivideUp(num_rows, kRowsPerPage);
  const uint64_t floats = shape.head_dim + 2 + (request.tiers.has_value() ? kRowsPerPage : 0);
  return 2 * states * floats * sizeof(float) * request.requests;
}

// The memory of attention for a prompt, which stays: for the layers with the fewest kv heads, which
// read each row with the most queries.
uint64_t PrefillBytes(const ModelShape& shape, const FitRequest& request, size_t num_rows) {
  const int tokens = ChunkTokens(request);
  if (request.on_device || tokens <= 1) return 0;
  int kv_heads = shape.num_kv_heads;
  for (const int heads : shape.kv_heads_by_layer) kv_heads = std::min(kv_heads, heads);
  const AttentionShape of_layer = {.num_q_heads = shape.num_q_heads,
                                   .num_kv_heads = kv_heads,
                                   .format = PageFormat::Of(shape, request.kv_type)};
  return MostPrefillBytes(of_layer, tokens, num_rows, request.threads);
}

// The rows of T2 of a layer, decompressed for a prompt that is read behind them, with a quarter to
// spare.
uint64_t DecompressedBytes(const ModelShape& shape, const FitRequest& request, size_t t2_rows) {
  if (request.on_device || BuffersGoBack(request)) return 0;
  const uint64_t pages = uint64_t{DivideUp(t2_rows, kRowsPerPage)} * shape.num_kv_heads;
  const uint64_t page_bytes = PageFormat::Of(shape, request.kv_type).PageBytes();
  return pages * page_bytes * 5 / 4 * request.requests;
}

// The bytes that a step on a device takes in addition to its activations: rows of a layer, gathered
// for a prompt; its mask, one for all streams, or for each where these may differ; lists of all
// rows, of the graphs that are kept. Eager attention has the logits of a layer in memory, and its
// values turned over. Policies that want mass of a prompt take more, which is not foretold.
uint64_t GatheredBytes(const ModelShape& shape, const FitRequest& request, size_t num_rows) {
  constexpr uint64_t kF16 = 2;
  const uint64_t rows = num_rows, tokens = ChunkTokens(request);
  const uint64_t of_layer = 2 * rows * shape.num_kv_heads * shape.head_dim * kF16;
  const bool is_uniform = shape.SmallestWindow() == 0 &&
                          (!request.tiers.has_value() || shape.NumGroups(request.granularity) == 1);
  const uint64_t planes = is_uniform ? 1 : shape.NumStreams();
  const uint64_t mask = kF16 * rows * (tokens * planes + kMaskPaddingTokens);
  const uint64_t lists = sizeof(int32_t) * rows * shape.NumStreams();
  const bool is_eager = request.device_attention == DeviceAttention::kEager;
  const uint64_t eager =
      is_eager
          ? sizeof(float) * rows * std::max<uint64_t>(tokens, 1) * shape.num_q_heads + of_layer / 2
          : 0;
  return of_layer + mask + eager + kKeptDeviceGraphs * lists * request.requests;
}

// The bytes of the rows of T2 of a layer while operations of ggml dequantise them: their records,
// keys and values in F32 before and after their rotation, and in F16 before they are put behind the
// other rows.
uint64_t DequantisedBytes(const ModelShape& shape, const CompressedFormat& format, size_t t2_rows) {
  constexpr uint64_t kBytes = 2 * sizeof(float) + sizeof(uint16_t);
  const uint64_t rows = uint64_t{t2_rows} * shape.num_kv_heads;
  return rows * (format.RowStride() + 2 * uint64_t{kBytes} * shape.head_dim);
}

// Slots and positions with a quarter to spare, and a page's address in each stream; with T2 the
// merged order besides.
uint64_t TableBytes(const ModelShape& shape, const FitRequest& request, const RowCounts& rows) {
  constexpr uint64_t kPerStream = 80;
  const auto streams = static_cast<uint64_t>(shape.NumStreams());
  const uint64_t all = rows.t0 + rows.t1 + rows.t2;
  uint64_t per_row = 8;
  if (rows.t2 > 0) per_row += 12;
  if (request.tiers.has_value()) per_row += 8;  // scores and kinds
  // Mass too, which a table of all shares; without tiers all groups keep the same rows.
  const uint64_t tables =
      request.tiers.has_value() ? shape.NumGroups(request.granularity) : uint64_t{1};
  if (tables > 1) per_row += 4;
  const uint64_t per_page = rows.t1 > 0 ? 12 : 8;
  const uint64_t bytes = tables * all * per_row * 5 / 4 +
                         DivideUp(all, kRowsPerPage) * streams * per_page * 4 / 3 +
                         streams * kPerStream;
  return bytes * request.requests;
}

// Two layers' pages in huge pages, and the pages that are edited between steps.
uint64_t StagingBytes(const ModelShape& shape, const FitRequest& request, size_t t1_rows) {
  if (t1_rows == 0) return 0;
  const uint64_t layer = uint64_t{1} * DivideUp(t1_rows, kRowsPerPage) * shape.num_kv_heads *
                         PageFormat::Of(shape, request.kv_type).PageBytes();
  const uint64_t edits = std::min<uint64_t>(kEditBytes, layer * shape.num_layers);
  // A device has no pages in memory for edits, and makes room for a quarter more.
  if (request.on_device) return 2 * RoundUp(layer * 5 / 4, kExtentBytes) * request.requests;
  return (2 * RoundUp(layer, kExtentBytes) + edits) * request.requests;
}

// Each given token may bring in a piece of the table, which the system maps so much of at once;
// what is generated mostly says the same words again.
uint64_t LookedUpBytes(const FitModel& model, const FitRequest& request) {
  constexpr uint64_t kFaultAround = 64 << 10;
  return std::min(model.lookup_bytes, kFaultAround * request.prompt_tokens * request.requests);
}

}  // namespace

uint64_t ExtentBytes(uint64_t num_pages, size_t page_bytes) {
  return DivideUp(num_pages, kExtentBytes / page_bytes) * kExtentBytes;
}

uint64_t SegmentBytes(uint64_t pages_per_layer, int num_layers, size_t page_bytes) {
  return DivideUp(pages_per_layer, kPagesPerSegment) * kPagesPerSegment * page_bytes * num_layers;
}

// Selective reading keeps the mean and the variance of each page's keys, and the keys of a few
// pages, in f16, with room to grow by a quarter; while a prompt is read, also its chunk's keys; and
// where choices are reused, the pages and the queries of two of them.
uint64_t SelectorBytes(const ModelShape& shape, const FitRequest& request) {
  constexpr uint64_t kKeptKeys = 5 * kRowsPerPage;
  const uint64_t vectors = kKeptKeys + 2 * DivideUp(request.context, kRowsPerPage);
  const uint64_t chunk_floats = ChunkTokens(request);
  const uint64_t of_stream = vectors * 5 / 4 * sizeof(uint16_t) + chunk_floats * sizeof(float);
  uint64_t bytes = of_stream * shape.head_dim * shape.NumStreams();
  if (request.tiers.has_value() && request.tiers->t1_reuse > 0) {
    const uint64_t queries = uint64_t{1} * shape.num_layers * shape.num_q_heads * shape.head_dim;
    const uint64_t pages = 2 * DivideUp(request.context, kRowsPerPage) * shape.NumStreams();
    bytes += 2 * (queries * sizeof(float) + pages);
  }
  return bytes * request.requests;
}

// The selector's vectors with which a device multiplies queries: as many bytes there as of the copy
// in the host's memory.
uint64_t RankVectorBytes(const ModelShape& shape, const FitRequest& request) {
  constexpr uint64_t kKeptKeys = 5 * kRowsPerPage, kPageStep = 64;
  const uint64_t pages = DivideUp(DivideUp(request.context, kRowsPerPage), kPageStep) * kPageStep;
  return (kKeptKeys + 2 * pages) * shape.head_dim * shape.NumStreams() * sizeof(uint16_t) *
         request.requests;
}

Result<RowsOverTime> FollowRows(const ModelShape& shape, const FitRequest& request) {
  if (request.tiers.has_value()) {
    const TierSpec tiers = TiersOfOne(request);
    const size_t page_bytes = PageFormat::Of(shape, request.kv_type).PageBytes();
    if (const auto num_rows = RowsOfSelectiveStep(tiers, static_cast<size_t>(request.context))) {
      EBB_RETURN_IF_ERROR(CheckCapOfSelection(tiers, shape, page_bytes, *num_rows));
    }
    return ForecastRows({.tiers = tiers,
                         .rows_available = RowsUnderCaps(tiers, shape, page_bytes),
                         .prompt_tokens = static_cast<size_t>(request.prompt_tokens),
                         .most_tokens = static_cast<size_t>(request.context),
                         .sinks = request.sinks,
                         .window = request.window,
                         .interval = request.interval});
  }
  RowsOverTime rows;
  rows.last.t0 = request.context;
  rows.peaks = rows.last;
  return rows;
}

uint64_t WeightsRead(const FitModel& model, int num_tokens) {
  const double unread = std::pow(1 - model.expert_share, num_tokens);
  return model.weight_bytes -
         static_cast<uint64_t>(static_cast<double>(model.expert_bytes) * unread);
}

Result<FitBytes> FitRequestInto(const FitModel& model, const FitRequest& request) {
  EBB_RETURN_IF_ERROR(CheckRequest(model, request));
  const ModelShape& shape = model.shape;
  EBB_ASSIGN_OR_RETURN(const RowsOverTime rows, FollowRows(shape, request));
  const TierSpec tiers = request.tiers.value_or(TierSpec());
  const PageFormat format = PageFormat::Of(shape, request.kv_type);
  CompressedFormat compressed = CompressedFormat::Of(format, tiers.t2_type);
  compressed.in_ggml_blocks = request.on_device && request.t2_in_ggml_blocks;
  const uint64_t streams = uint64_t{1} * shape.NumStreams() * request.requests;
  const auto pages = [](size_t num_rows) { return uint64_t{DivideUp(num_rows, kRowsPerPage)}; };

  FitBytes bytes = {.weights = model.weight_bytes, .program = model.program_bytes};
  bytes.on_device = request.on_device;
  bytes.t2_on_device = request.on_device && request.t2_on_device;
  bytes.weights_unread = model.weight_bytes - WeightsRead(model, request.requests);
  // Tokens are looked up on the host, where a step reads a row of the table for each.
  const uint64_t looked_up = LookedUpBytes(model, request);
  if (request.on_device) {
    bytes.program += looked_up;
  } else {
    bytes.weights += looked_up;
    bytes.weights_unread += looked_up;
  }
  // Rows leave holes behind, which compaction fills in the steps that follow: a page more.
  const bool rows_leave = rows.peaks.t1 + rows.peaks.t2 > 0 || tiers.evict_share > 0;
  const uint64_t t0_rows = T0Rows(model, request, rows.peaks.t0);
  bytes.t0 = ExtentBytes(t0_rows / kRowsPerPage * request.requests + (rows_leave ? streams : 0),
                         format.PageBytes());
  if (tiers.t0_cap_bytes > 0) {
    bytes.t0 = std::min(bytes.t0, tiers.t0_cap_bytes / kExtentBytes * kExtentBytes);
  }
  if (request.kv_cap_bytes > 0 && request.tiers.has_value() && !HoldsOldRowsInT2(request.tiers)) {
    return InvalidArgument(
        "kv_cap_bytes",
        "a cap on the cache cannot be combined with these tiers, which take caps on T0 and T1; a "
        "compressed cache without a T1 takes it");
  }
  const bool file = tiers.t1 == T1Place::kFile;
  if (file) {
    bytes.t1_disk = SegmentBytes(pages(rows.peaks.t1) * shape.num_kv_heads * request.requests,
                                 shape.num_layers, format.PageBytes());
  } else {
    bytes.t1_memory = ExtentBytes(pages(rows.peaks.t1) * streams, format.PageBytes());
  }
  if (file || request.on_device) bytes.staging = StagingBytes(shape, request, rows.peaks.t1);
  const uint64_t in_t1 = pages(rows.peaks.t1) * streams * format.PageBytes();
  if (file && request.on_device) {
    // Two layers for steps that read all rows, batches of a layer's chosen pages for others.
    const double layers = ReadsSelectively(tiers) ? 2 + 3 * kShareSelected : 2;
    bytes.staging_on_host =
        static_cast<uint64_t>(layers * static_cast<double>(in_t1 / shape.num_layers));
  }
  if ((file || request.on_device) && ReadsSelectively(tiers)) {
    // The cached pages, and those of a layer and the next one that find no place there.
    uint64_t cached = static_cast<uint64_t>(tiers.t0_share * static_cast<double>(in_t1));
    if (tiers.t0_cap_bytes > 0) cached = std::min(in_t1, tiers.t0_cap_bytes - bytes.t0);
    bytes.staging = std::max(bytes.staging, cached + 2 * in_t1 / shape.num_layers);
  }
  const size_t t2_page_bytes =
      bytes.t2_on_device ? CompressedPageBytesOnDevice(compressed) : compressed.PageBytes();
  bytes.t2 = ExtentBytes(pages(rows.peaks.t2) * streams, t2_page_bytes);
  if (request.kv_cap_bytes > 0 && bytes.t0 + bytes.t2 > request.kv_cap_bytes) {
    return T0Full(fmt::format("the cap on the cache is {} bytes, and its rows take {}",
                              request.kv_cap_bytes, bytes.t0 + bytes.t2));
  }
  bytes.tables = TableBytes(shape, request, rows.last);
  if (ReadsSelectively(tiers)) {
    bytes.tables += SelectorBytes(shape, request);
    if (request.on_device) bytes.tables += RankVectorBytes(shape, request);
  }
  bytes.states = model.state_bytes * (1 + NumCheckpoints(model, request)) * request.requests;
  const size_t all_rows = rows.last.t0 + rows.last.t1 + rows.last.t2;
  // Without later prompts attention takes memory for the rows of the given ones alone.
  const size_t rows_at_prompt =
      request.prompts_at_any_time ? all_rows : std::min<size_t>(all_rows, request.prompt_tokens);
  bytes.compute = LastGraphBytes(model, request) + AttentionBytes(shape, request, all_rows) +
                  PrefillBytes(shape, request, rows_at_prompt) +
                  DecompressedBytes(shape, request, rows.peaks.t2);
  const uint64_t row_bytes = format.RowBytes();
  double of_t1_read = 1, of_t1_from_disk = file ? 1 : 0;
  if (ReadsSelectively(tiers)) {
    of_t1_read = kShareSelected;
    of_t1_from_disk *= of_t1_read * std::max(0.0, 1 - tiers.t0_share / kShareThatHoldsAllReads);
  }
  const auto of_t1 = static_cast<double>(rows.last.t1 * row_bytes * streams);
  const uint64_t of_t0 = RowsOfStreams(shape, rows.last.t0, 0, 0, 1) * row_bytes * request.requests;
  bytes.t2_type = tiers.t2_type;
  bytes.rows_read_compressed = rows.last.t2 * compressed.RowStride() * streams;
  bytes.rows_read_memory =
      of_t0 + bytes.rows_read_compressed + static_cast<uint64_t>(of_t1 * of_t1_read);
  bytes.rows_read_disk = static_cast<uint64_t>(of_t1 * of_t1_from_disk);
  if (request.on_device) {
    const uint64_t other_rows = bytes.t2_on_device ? bytes.t2 : 0;
    if (bytes.t0 + other_rows < kLeastDeviceBytes) bytes.t0 = kLeastDeviceBytes - other_rows;
    // Sizes of graphs on a device are those of its widest step, and stay.
    bytes.compute = GraphBytes(model, request, std::max(ChunkTokens(request), request.requests)) +
                    GatheredBytes(shape, request, all_rows);
    if (ReadsSelectively(tiers)) bytes.compute += RankVectorBytes(shape, request);
    if (compressed.in_ggml_blocks) {
      bytes.compute += DequantisedBytes(shape, compressed, rows.peaks.t2);
    }
    return bytes;
  }
  if (BuffersGoBack(request)) {
    // After a long prompt its buffers may have been more than what the generation adds. They are
    // still there when the first token's rows come.
    FitRequest prompt = request;
    prompt.context = std::min(request.prompt_tokens + 1, request.context);
    prompt.prompts_at_any_time = true;
    EBB_ASSIGN_OR_RETURN(const FitBytes at_prompt, FitRequestInto(model, prompt));
    bytes.compute += std::max(at_prompt.Memory(), bytes.Memory()) - bytes.Memory();
  }
  return bytes;
}

}  // namespace ebb
