// Attention is a fold over rows. For one query the state is (m, l, o): running maximum of the
// logits, sum of exp(logit - m), and the sum of the values, each weighted by exp(logit - m). States
// merge exactly by log-sum-exp, so parts of a node, tiers and devices are all the same merge.
//
// Canonical order, which makes results independent of where rows lie and of how many threads run:
// visible rows are cut into chunks of kChunkRows by their index in order of position, each chunk is
// folded in that order, and chunk states are merged in that order. Nothing depends on slots.
//
// A sink is a logit without a row: it takes part in the softmax of its query head and adds no
// value. It counts as one more chunk state, (sink, 1, 0).
//
// A kernel is a table of functions over plain arrays; src/attention/decode.h and prefill.h split
// the work among threads. Kernels differ from each other in rounding only.
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

// Visible rows in a chunk of decode, and in a chunk of prefill.
inline constexpr int kChunkRows = 64;
inline constexpr int kPrefillChunkRows = 64;

// The logit of a sink that takes no part.
inline constexpr float kNoSink = -std::numeric_limits<float>::infinity();

struct AttentionShape {
  int num_q_heads = 0;
  int num_kv_heads = 0;
  float scale = 0;  // of the logits, usually 1 / sqrt(head_dim)
  // A scaled logit x counts as soft_cap * tanh(x / soft_cap); 0: as x. Sinks are not capped.
  float soft_cap = 0;
  PageFormat format;
  CompressedFormat compressed = {};  // head_dim 0: no row is compressed

  [[nodiscard]] int QueryHeadsPerKvHead() const { return num_q_heads / num_kv_heads; }
};

// Fills `keys` with the addresses of the keys of the rows that are read, of them [begin, end), at
// most kChunkRows, and its rest with the last of them. REQUIRES: begin < end; where rows are
// chosen, `begin` is that of a chunk.
void LocateKeys(const RowsView& rows, const PageFormat& format, uint32_t begin, uint32_t end,
                std::span<const std::byte*, kChunkRows> keys);

// One chunk of rows of one kv head, for all the query heads that share it.
struct FoldInput {
  PageFormat format;
  const std::byte* const* keys = nullptr;  // [kChunkRows], from LocateKeys()
  int num_rows = 0;                        // from 1 to kChunkRows
  // The keys that this part reads next, fetched ahead; if there is no next chunk, pass `keys`.
  const std::byte* const* next_keys = nullptr;  // [kChunkRows]
  const float* q = nullptr;                     // [num_heads, head_dim]
  int num_heads = 0;
  float scale = 0;
  float soft_cap = 0;  // see AttentionShape
};
struct FoldOutput {
  float* m = nullptr;  // head g at m[g * head_stride]
  float* l = nullptr;  // the same; NaN where a logit or an output of the head is not finite
  size_t head_stride = 0;
  float* o = nullptr;  // [num_heads, head_dim], not yet divided by l
  float* p = nullptr;  // exp(logit - m): row r of head g at p[g * p_stride + r]
  size_t p_stride = 0;
};

struct CompressedFoldInput;  // src/attention/compressed.h

// The chunk states of one query head, merged in order.
struct MergeInput {
  const float* m = nullptr;  // [num_chunks]
  const float* l = nullptr;  // [num_chunks]
  const float* o = nullptr;  // chunk c at o[c * o_stride], [head_dim]
  size_t o_stride = 0;
  int num_chunks = 0;
  int head_dim = 0;
  float sink = kNoSink;
};

// The rows of one kv head and kind, for neighbouring query heads whose mass goes to one array.
struct MassInput {
  // FoldOutput's weights: chunk c and head g at p[c * p_chunk_stride + g * p_stride], [kChunkRows].
  const float* p = nullptr;
  size_t p_chunk_stride = 0;
  size_t p_stride = 0;
  const float* weights = nullptr;  // chunk c and head g at weights[g * weights_stride + c]
  size_t weights_stride = 0;
  int num_heads = 0;
  size_t begin = 0;  // row r is in chunk r / kChunkRows
  size_t end = 0;
};

// Causal attention of up to QueryTile() query tokens, for the query heads of one kv head, over all
// its rows. A row is seen by queries at its position and later, up to its last visible position.
struct PrefillInput {
  PageFormat format;
  const RowsView* rows = nullptr;
  int first_chunk_rows = kPrefillChunkRows;  // at most that; later chunks have as many
  const float* q = nullptr;  // token t, head g at q[t * q_token_stride + g * q_head_stride]
  size_t q_token_stride = 0;
  size_t q_head_stride = 0;
  const Position* positions = nullptr;  // [num_queries], ascending
  int num_queries = 0;
  int num_heads = 0;
  float scale = 0;
  float soft_cap = 0;            // see AttentionShape
  const float* sinks = nullptr;  // [num_heads]; null: there are none
};
struct PrefillOutput {
  float* o = nullptr;  // token t, head g at o[t * o_token_stride + g * head_dim], divided by l
  size_t o_token_stride = 0;
  float* m = nullptr;  // [num_queries, num_heads]; with l, for the mass pass. Null: not wanted
  float* l = nullptr;
  std::span<float> scratch;  // at least PrefillScratchFloats()
};

// Mass of the rows [begin, end) of one kv head, at most kPrefillChunkRows, over a tile's queries,
// from the final m and l of each (query, head).
struct PrefillMassInput {
  PrefillInput tile;
  uint32_t begin = 0;
  uint32_t end = 0;
  const float* m = nullptr;  // [num_queries, num_heads]
  const float* l = nullptr;
  std::span<float> scratch;
  float* const* mass = nullptr;  // [num_heads], each [rows]: adds to mass[g][begin..end)
};

struct AttentionKernel {
  std::string_view name;
  // [head_dim] floats to a row of pages, rounded to nearest, and back.
  void (*store_row)(RowType type, const float* from, std::byte* to, int head_dim);
  void (*load_row)(RowType type, const std::byte* from, float* to, int head_dim);
  void (*fold)(const FoldInput& in, const FoldOutput& out);
  // weights[c] = exp(m[c] - M) / L; returns false when a state is not finite.
  bool (*chunk_weights)(const MergeInput& in, float* weights);
  // out[head_dim] = sum over c of weights[c] * o[c].
  void (*merge)(const MergeInput& in, const float* weights, float* out);
  // mass[r] += sum over g of weight * p of row r and head g, begin <= r < end.
  void (*add_mass)(const MassInput& in, float* mass);
  int (*query_tile)(int num_heads);  // query tokens that one prefill call takes
  size_t (*prefill_scratch_floats)(int num_heads, int head_dim);
  // The rotation of compressed rows and their queries: orthonormal, its own inverse.
  void (*rotate)(float* x, int head_dim);
  // key_centre: [head_dim] floats that every key of the stream is stored relative to; null: zeros.
  void (*compress_row)(const CompressedFormat& format, const float* key_centre, const float* key,
                       const float* value, std::byte* row);
  void (*decompress_row)(const CompressedFormat& format, const float* key_centre,
                         const std::byte* row, float* key, float* value);
  // As fold, with queries rotated and rounded (RoundQuery()) and o left in the rotated basis.
  void (*fold_compressed)(const CompressedFoldInput& in, const FoldOutput& out);
  // Returns false when an output is not finite.
  bool (*prefill)(const PrefillInput& in, const PrefillOutput& out);
  void (*prefill_mass)(const PrefillMassInput& in);
};

// Scalar, double accumulators: what the others are held against.
[[nodiscard]] const AttentionKernel& ReferenceAttention();
// Highway, the best instruction set of this machine.
[[nodiscard]] const AttentionKernel& CpuAttention();

// Which instruction sets this build can use here, best first: "AVX3", "AVX2", "SSE4", ... Setting
// EBB_ATTENTION to one of them, or to "reference", forces it (read by the engine).
[[nodiscard]] Result<const AttentionKernel*> AttentionByName(std::string_view name);
[[nodiscard]] std::span<const AttentionKernel> AllAttentionKernels();

// Errors: head_dim not a multiple of kHeadDimStep or too large, heads that do not divide.
[[nodiscard]] Status CheckAttentionShape(const AttentionShape& shape);

}  // namespace ebb

#endif  // EBB_ATTENTION_ATTENTION_H_
