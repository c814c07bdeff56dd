// AttentionKernel computes softmax attention over rows, as an online softmax. For one query, the
// state of some rows is (m, l, o): the maximum of the logits, the sum of exp(logit - m), and the
// sum of the values weighted by exp(logit - m), not yet divided by l. To "fold" rows is to compute
// their state. States are merged exactly, by log-sum-exp; the same merge joins threads' parts,
// tiers and devices.
//
// Results depend neither on where rows lie nor on the number of threads, because the order of
// arithmetic is fixed: visible rows are cut into chunks of kChunkRows by their index in order of
// position, each chunk is folded in that order, and the chunks' states are merged in that order.
// Slots play no part.
//
// An attention sink is a logit without a row: it counts in the softmax of its query head and adds
// no value. It is merged as one more state, (sink, 1, 0).
//
// A kernel is a table of functions over plain arrays; src/attention/decode.h and prefill.h divide
// the work among threads. Kernels differ from each other only by rounding.
#ifndef EBB_ATTENTION_ATTENTION_H_
#define EBB_ATTENTION_ATTENTION_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

#include "ebb/status.h"
#include "ebb/types.h"
#include "src/attention/rows.h"
#include "src/base/head_sizes.h"

namespace ebb {

// kChunkRows and kPrefillChunkRows are how many visible rows a chunk has in decode and in prefill.
inline constexpr int kChunkRows = 64;
inline constexpr int kPrefillChunkRows = 64;

// kNoSink is the sink of a query head that has none: a logit that adds nothing to a softmax.
inline constexpr float kNoSink = -std::numeric_limits<float>::infinity();

struct AttentionShape {
  int num_q_heads = 0;
  int num_kv_heads = 0;
  float scale = 0;  // factor of the logits, usually 1 / sqrt(head_dim)
  // soft_cap bounds logits: a scaled logit x becomes soft_cap * tanh(x / soft_cap); 0: no cap.
  // Sinks are not capped.
  float soft_cap = 0;
  PageFormat format;
  CompressedFormat compressed = {};  // head_dim 0: there are no compressed rows

  [[nodiscard]] int QueryHeadsPerKvHead() const { return num_q_heads / num_kv_heads; }
};

// Writes the addresses of the keys of rows [begin, end), counted among the rows that are read, to
// `keys`, and fills the rest of `keys` with the last address. REQUIRES: begin < end, at most
// kChunkRows rows; if rows.chosen has ranges, a chunk begins at `begin`.
void LocateKeys(const RowsView& rows, const PageFormat& format, uint32_t begin, uint32_t end,
                std::span<const std::byte*, kChunkRows> keys);

// FoldInput is a chunk of rows of one kv head, and the queries of all query heads that share the
// head.
struct FoldInput {
  PageFormat format;
  const std::byte* const* keys = nullptr;  // [kChunkRows], from LocateKeys()
  int num_rows = 0;                        // from 1 to kChunkRows
  // next_keys are the keys that this thread reads next, for prefetching; equal to `keys` if there
  // are none.
  const std::byte* const* next_keys = nullptr;  // [kChunkRows]
  const float* q = nullptr;                     // [num_heads, head_dim]
  int num_heads = 0;
  float scale = 0;
  float soft_cap = 0;  // see AttentionShape
};
struct FoldOutput {
  float* m = nullptr;  // maximum logit; head g at m[g * head_stride]
  float* l = nullptr;  // sum; like m; NaN if the head's result is not finite
  size_t head_stride = 0;
  float* o = nullptr;  // [num_heads, head_dim], not yet divided by l
  float* p = nullptr;  // exp(logit - m): row r of head g at p[g * p_stride + r]
  size_t p_stride = 0;
};

struct CompressedFoldInput;  // src/attention/compressed.h

// MergeInput holds the states of one query head's chunks, which are merged in order.
struct MergeInput {
  const float* m = nullptr;  // [num_chunks]
  const float* l = nullptr;  // [num_chunks]
  const float* o = nullptr;  // chunk c at o[c * o_stride], [head_dim]
  size_t o_stride = 0;
  int num_chunks = 0;
  int head_dim = 0;
  float sink = kNoSink;
};

// MassInput describes rows of one kv head, either full or compressed, whose mass in adjacent query
// heads is added to one array.
struct MassInput {
  // p has the weights that FoldOutput::p received: [kChunkRows] of chunk c and head g at p[c *
  // p_chunk_stride + g * p_stride].
  const float* p = nullptr;
  size_t p_chunk_stride = 0;
  size_t p_stride = 0;
  const float* weights = nullptr;  // weight of chunk c and head g at [g * weights_stride + c]
  size_t weights_stride = 0;
  int num_heads = 0;
  size_t begin = 0;  // row r is in chunk r / kChunkRows
  size_t end = 0;
};

// PrefillInput describes causal attention of a tile: up to query_tile() consecutive tokens, in the
// query heads of one kv head, over all of the head's rows. A query sees a row if its position is
// between the row's position and the row's last visible position.
struct PrefillInput {
  PageFormat format;
  const RowsView* rows = nullptr;
  // first_chunk_rows is the number of rows in the first chunk; later chunks have kPrefillChunkRows.
  int first_chunk_rows = kPrefillChunkRows;
  const float* q = nullptr;  // token t, head g at q[t * q_token_stride + g * q_head_stride]
  size_t q_token_stride = 0;
  size_t q_head_stride = 0;
  const Position* positions = nullptr;  // [num_queries], ascending
  int num_queries = 0;
  int num_heads = 0;
  float scale = 0;
  float soft_cap = 0;            // see AttentionShape
  const float* sinks = nullptr;  // [num_heads]; null: the model has none
};
struct PrefillOutput {
  float* o = nullptr;  // attention; token t, head g at o[t * o_token_stride + g * head_dim]
  size_t o_token_stride = 0;
  float* m = nullptr;  // [num_queries, num_heads]; with l, for mass. Null: not wanted
  float* l = nullptr;
  std::span<float> scratch;  // at least PrefillScratchFloats()
};

// PrefillMassInput describes the mass, over a tile's queries, of the rows [begin, end) of one kv
// head, at most kPrefillChunkRows. It is computed from the final m and l of each (query, head).
struct PrefillMassInput {
  PrefillInput tile;
  uint32_t begin = 0;
  uint32_t end = 0;
  const float* m = nullptr;  // [num_queries, num_heads]
  const float* l = nullptr;
  std::span<float> scratch;
  float* const* mass = nullptr;  // [num_heads] arrays; mass[g][begin..end) is added to
};

struct AttentionKernel {
  std::string_view name;
  // store_row converts [head_dim] floats to a key or value in a page, rounded to nearest; load_row
  // converts back.
  void (*store_row)(RowType type, const float* from, std::byte* to, int head_dim);
  void (*load_row)(RowType type, const std::byte* from, float* to, int head_dim);
  void (*fold)(const FoldInput& in, const FoldOutput& out);
  // Computes weights[c] = exp(m[c] - M) / L, where M and L are those of all chunks together.
  // Returns false if a state is not finite.
  bool (*chunk_weights)(const MergeInput& in, float* weights);
  // Computes out[head_dim] = sum over c of weights[c] * o[c].
  void (*merge)(const MergeInput& in, const float* weights, float* out);
  // Adds to mass[r], for each row r from begin to end - 1, the softmax probability of the row,
  // summed over the query heads g of the kv head.
  void (*add_mass)(const MassInput& in, float* mass);
  int (*query_tile)(int num_heads);  // number of query tokens in a tile
  size_t (*prefill_scratch_floats)(int num_heads, int head_dim);
  // Rotates a key, value or query of compressed rows in place, by an orthonormal matrix that is its
  // own inverse.
  void (*rotate)(float* x, int head_dim);
  // Compresses a key and a value to a row of T2.
  void (*compress_row)(const CompressedFormat& format, const KeyFrame& frame, const float* key,
                       const float* value, std::byte* row);
  void (*decompress_row)(const CompressedFormat& format, const float* key_centre,
                         const std::byte* row, float* key, float* value);
  // Computes the state of compressed rows, as `fold` does of full ones. Queries are rotated and
  // rounded (RoundQuery()); `o` stays rotated.
  void (*fold_compressed)(const CompressedFoldInput& in, const FoldOutput& out);
  // Computes the attention of a tile. Returns false if an output is not finite.
  bool (*prefill)(const PrefillInput& in, const PrefillOutput& out);
  void (*prefill_mass)(const PrefillMassInput& in);
};

// Returns the reference kernel, with which the others are compared: scalar, in double.
[[nodiscard]] const AttentionKernel& ReferenceAttention();
// Returns the kernel for the best instruction set of this machine, written with Highway.
[[nodiscard]] const AttentionKernel& CpuAttention();

// Returns the kernel for an instruction set, "AVX3", "AVX2", "SSE4", ..., or "reference";
// AllAttentionKernels() returns all that this machine can run, the best first. The engine reads the
// name from the environment variable EBB_ATTENTION. Errors: InvalidArgument, listing the names.
[[nodiscard]] Result<const AttentionKernel*> AttentionByName(std::string_view name);
[[nodiscard]] std::span<const AttentionKernel> AllAttentionKernels();

// Checks that kernels support the shape. Errors: Unsupported (head_dim is not a multiple of
// kHeadDimStep or too large; kv heads do not divide query heads).
[[nodiscard]] Status CheckAttentionShape(const AttentionShape& shape);

}  // namespace ebb

#endif  // EBB_ATTENTION_ATTENTION_H_
