#include "src/attention/prefill.h"

#include <algorithm>

#include "src/attention/prefill_sizes.h"

namespace ebb {
namespace {

// kFewTiles is the number of tiles below which each tile's rows are cut into slices, so that all
// threads have work.
constexpr size_t kFewTiles = 16;
constexpr uint32_t kSliceRows = 1024;  // least rows of a slice
constexpr uint32_t kMaxSlices = 8;     // most slices of a tile

RowsView Between(const RowsView& rows, uint32_t begin, uint32_t end) {
  RowsView slice = rows;
  slice.slots = rows.slots.subspan(begin, end - begin);
  slice.positions = rows.positions.subspan(begin, end - begin);
  if (!rows.last_visible.empty()) {
    slice.last_visible = rows.last_visible.subspan(begin, end - begin);
  }
  return slice;
}

// Returns the number of rows in the first chunk. Rows before a window are not read, and chunks of
// the other rows begin at positions that are multiples of the chunk size, as they would without
// eviction. The result then depends neither on which rows were evicted nor on how a prompt is cut
// into steps.
int FirstChunkRows(const RowsView& rows) {
  if (rows.window == 0) return kPrefillChunkRows;
  return kPrefillChunkRows - rows.positions.front() % kPrefillChunkRows;
}

// Returns whether `num_tiles` tiles per kv head are too few to keep the threads busy.
bool AreFew(int num_tiles, int num_kv_heads) {
  return size_t(num_tiles) * num_kv_heads < kFewTiles;
}

uint32_t NumSlices(uint32_t num_old_rows) {
  return std::clamp<uint32_t>(num_old_rows / kSliceRows, 1, kMaxSlices);
}

// Returns how many slices need memory for their result; a tile with only one slice writes to the
// output.
size_t NumReservedSlices(size_t num_tiles, size_t num_rows) {
  const size_t slices = NumSlices(static_cast<uint32_t>(num_rows));
  return num_tiles < kFewTiles && slices > 1 ? num_tiles * slices : 0;
}

}  // namespace

bool AreCutAlike(const AttentionKernel& kernel, const AttentionShape& shape, size_t num_old_rows,
                 int a, int b) {
  if (a == b || NumSlices(static_cast<uint32_t>(num_old_rows)) == 1) return true;
  const int tile_tokens = kernel.query_tile(shape.QueryHeadsPerKvHead());
  const int num_tiles = (std::min(a, b) + tile_tokens - 1) / tile_tokens;
  return !AreFew(num_tiles, shape.num_kv_heads);
}

uint64_t MostPrefillBytes(const AttentionShape& shape, int num_tokens, size_t num_rows,
                          int num_parts) {
  const int heads = shape.QueryHeadsPerKvHead();
  const int tile_tokens = QueryTileOf(kMostLanes, heads);
  const size_t scratch = PrefillScratchFloatsOf(kMostLanes, heads, shape.format.head_dim);
  const size_t states = size_t(num_tokens) * shape.num_q_heads;
  // A step of fewer tokens may have slices even if the widest step has none.
  const size_t kv_heads = shape.num_kv_heads;
  const size_t most_tiles = size_t((num_tokens + tile_tokens - 1) / tile_tokens) * kv_heads;
  const size_t tiles = std::min(most_tiles, (kFewTiles - 1) / kv_heads * kv_heads);
  const size_t slice_states = NumReservedSlices(tiles, num_rows) * tile_tokens * heads;
  return sizeof(float) *
         (scratch * num_parts + 2 * states + slice_states * (shape.format.head_dim + 2));
}

PrefillAttention::PrefillAttention(const AttentionKernel& kernel, const AttentionShape& shape)
    : kernel_(kernel), shape_(shape) {}

void PrefillAttention::SetKvHeads(int num_kv_heads) {
  shape_.num_kv_heads = num_kv_heads;
  tile_tokens_ = kernel_.query_tile(shape_.QueryHeadsPerKvHead());
}

void PrefillAttention::Reserve(int num_kv_heads, int num_tokens, size_t num_rows, int num_parts) {
  SetKvHeads(num_kv_heads);
  const auto grow = [](std::vector<float>* floats, size_t size) {
    if (floats->size() < size) floats->resize(size);
  };
  const int heads = shape_.QueryHeadsPerKvHead();
  scratch_floats_ =
      std::max(scratch_floats_, kernel_.prefill_scratch_floats(heads, shape_.format.head_dim));
  grow(&scratch_, scratch_floats_ * num_parts);
  grow(&m_, size_t(num_tokens) * shape_.num_q_heads);
  grow(&l_, size_t(num_tokens) * shape_.num_q_heads);
  const size_t tiles = size_t(NumTiles(num_tokens)) * shape_.num_kv_heads;
  const size_t in_slices = NumReservedSlices(tiles, num_rows);
  const size_t num_units = std::max(tiles, in_slices);
  units_.reserve(num_units);
  if (slices_done_.size() < num_units) slices_done_ = std::vector<std::atomic<int>>(num_units);
  grow(&slice_o_, in_slices * tile_tokens_ * heads * shape_.format.head_dim);
  grow(&slice_m_, in_slices * tile_tokens_ * heads);
  grow(&slice_l_, in_slices * tile_tokens_ * heads);
}

uint64_t PrefillAttention::reserved_bytes() const {
  return sizeof(float) * (scratch_.size() + m_.size() + l_.size() + slice_o_.size() +
                          slice_m_.size() + slice_l_.size());
}

void PrefillAttention::Plan(const PrefillQueries& queries) {
  queries_ = queries;
  SetKvHeads(static_cast<int>(queries.rows.size()));
  num_tiles_ = NumTiles(static_cast<int>(queries.positions.size()));
  if (queries_.chunk_tokens == 0) {
    queries_.chunk_first = queries.positions.front();
    queries_.chunk_tokens = static_cast<int>(queries.positions.size());
  }
  const bool few = AreFew(NumTiles(queries_.chunk_tokens), shape_.num_kv_heads);
  units_.clear();
  // Plan late tiles first, since they see the most rows, so that threads end together.
  for (int tile = num_tiles_ - 1; tile >= 0; --tile) {
    for (int h = 0; h < shape_.num_kv_heads; ++h) PlanTile(h, tile, few);
  }
  finite_ = true;
  next_unit_ = 0;
  next_mass_unit_ = 0;
}

// Plans the units of a tile: one for all of its rows, or with `in_slices` one for each slice of
// them. Every query sees a row of each slice, because rows are sliced only if none is hidden from
// later queries, and because the last slice is longer than the step.
void PrefillAttention::PlanTile(int kv_head, int tile, bool in_slices) {
  const RowsView& rows = queries_.rows[kv_head];
  const auto num_rows = static_cast<uint32_t>(rows.size());
  uint32_t slices = 1, slice_rows = num_rows, first = 0;
  if (rows.window > 0) {
    const Position first_query = queries_.positions[size_t(tile) * tile_tokens_];
    first =
        static_cast<uint32_t>(std::ranges::upper_bound(rows.positions, first_query - rows.window) -
                              rows.positions.begin());
  } else if (in_slices && rows.last_visible.empty()) {
    const auto old = static_cast<uint32_t>(
        std::ranges::lower_bound(rows.positions, queries_.chunk_first) - rows.positions.begin());
    slices = NumSlices(old);
    const uint32_t all = old + static_cast<uint32_t>(queries_.chunk_tokens);
    slice_rows = std::max<uint32_t>(all / slices / kPrefillChunkRows, 1) * kPrefillChunkRows;
  }
  slices_done_[units_.size()] = 0;
  for (uint32_t slice = 0; slice < slices; ++slice) {
    units_.push_back({.kv_head = kv_head,
                      .tile = tile,
                      .slice = static_cast<int>(slice),
                      .num_slices = static_cast<int>(slices),
                      .begin = slice == 0 ? first : slice * slice_rows,
                      .end = slice + 1 == slices ? num_rows : (slice + 1) * slice_rows});
  }
}

PrefillInput PrefillAttention::Tile(int kv_head, int tile) const {
  const int heads = shape_.QueryHeadsPerKvHead();
  const int head_dim = shape_.format.head_dim;
  const size_t first = size_t(tile) * tile_tokens_;
  const size_t dense = size_t(shape_.num_q_heads) * head_dim;
  const size_t stride = queries_.q_token_stride == 0 ? dense : queries_.q_token_stride;
  return {
      .format = shape_.format,
      .rows = &queries_.rows[kv_head],
      .q = queries_.q + first * stride + size_t(kv_head) * heads * head_dim,
      .q_token_stride = stride,
      .q_head_stride = size_t(head_dim),
      .positions = queries_.positions.data() + first,
      .num_queries =
          static_cast<int>(std::min<size_t>(tile_tokens_, queries_.positions.size() - first)),
      .num_heads = heads,
      .scale = shape_.scale,
      .soft_cap = shape_.soft_cap,
      .sinks = queries_.sinks == nullptr ? nullptr : queries_.sinks + size_t(kv_head) * heads,
  };
}

PrefillOutput PrefillAttention::OutputOf(const Unit& unit) {
  const int heads = shape_.QueryHeadsPerKvHead();
  const size_t first = size_t(unit.tile) * tile_tokens_;
  const size_t state = (unit.kv_head * queries_.positions.size() + first) * heads;
  const bool keep_states = !queries_.mass.per_query_head.empty();
  return {.o = queries_.out +
               (first * shape_.num_q_heads + unit.kv_head * heads) * shape_.format.head_dim,
          .o_token_stride = size_t(shape_.num_q_heads) * shape_.format.head_dim,
          .m = keep_states ? m_.data() + state : nullptr,
          .l = keep_states ? l_.data() + state : nullptr};
}

PrefillOutput PrefillAttention::SliceOf(size_t unit) {
  const size_t token_floats = size_t(shape_.QueryHeadsPerKvHead()) * shape_.format.head_dim;
  const size_t states = unit * tile_tokens_ * shape_.QueryHeadsPerKvHead();
  return {.o = slice_o_.data() + unit * tile_tokens_ * token_floats,
          .o_token_stride = token_floats,
          .m = slice_m_.data() + states,
          .l = slice_l_.data() + states};
}

void PrefillAttention::Run(int part) {
  for (size_t i = next_unit_++; i < units_.size(); i = next_unit_++) {
    const Unit& unit = units_[i];
    PrefillInput in = Tile(unit.kv_head, unit.tile);
    const RowsView rows = Between(*in.rows, unit.begin, unit.end);
    in.rows = &rows;
    // Slices are merged like chunks, so that the sink must be counted in only one of them.
    if (unit.slice > 0) in.sinks = nullptr;
    in.first_chunk_rows = FirstChunkRows(rows);
    const bool whole = unit.num_slices == 1;
    PrefillOutput out = whole ? OutputOf(unit) : SliceOf(i);
    out.scratch = std::span(scratch_).subspan(part * scratch_floats_, scratch_floats_);
    if (!kernel_.prefill(in, out)) finite_ = false;
    if (!whole && ++slices_done_[i - unit.slice] == unit.num_slices) MergeSlices(i - unit.slice);
  }
}

void PrefillAttention::MergeSlices(size_t first) {
  const Unit& unit = units_[first];
  const int heads = shape_.QueryHeadsPerKvHead();
  const int head_dim = shape_.format.head_dim;
  const PrefillOutput to = OutputOf(unit);
  const int num_queries = Tile(unit.kv_head, unit.tile).num_queries;
  float m[kMaxSlices], l[kMaxSlices], weights[kMaxSlices];
  for (int state = 0; state < num_queries * heads; ++state) {
    for (int p = 0; p < unit.num_slices; ++p) {
      m[p] = SliceOf(first + p).m[state];
      l[p] = SliceOf(first + p).l[state];
    }
    const MergeInput slices = {.m = m,
                               .l = l,
                               .o = SliceOf(first).o + size_t(state) * head_dim,
                               .o_stride = size_t(tile_tokens_) * heads * head_dim,
                               .num_chunks = unit.num_slices,
                               .head_dim = head_dim};
    if (!kernel_.chunk_weights(slices, weights)) finite_ = false;
    if (to.m != nullptr) {
      const auto top = std::max_element(m, m + unit.num_slices) - m;
      to.m[state] = m[top];
      to.l[state] = 1 / weights[top];
    }
    // Multiplies by l: merging expects undivided sums, but a slice's output is divided by l
    // already.
    for (int p = 0; p < unit.num_slices; ++p) weights[p] *= l[p];
    const size_t token = state / heads, head = state % heads;
    kernel_.merge(slices, weights, to.o + token * to.o_token_stride + head * head_dim);
  }
}

void PrefillAttention::Mass(int part) {
  if (!finite_) {
    if (part == 0 && queries_.mass.not_finite != nullptr) *queries_.mass.not_finite = true;
    return;
  }
  size_t max_rows = 0;
  for (const RowsView& rows : queries_.rows) max_rows = std::max(max_rows, rows.size());
  const int num_chunks = static_cast<int>((max_rows + kPrefillChunkRows - 1) / kPrefillChunkRows);
  const auto scratch = std::span(scratch_).subspan(part * scratch_floats_, scratch_floats_);
  // One part computes all heads of a chunk, because their targets may be the same array.
  for (int chunk = next_mass_unit_++; chunk < num_chunks; chunk = next_mass_unit_++) {
    for (int h = 0; h < shape_.num_kv_heads; ++h) {
      const uint32_t begin = chunk * kPrefillChunkRows;
      if (begin < queries_.rows[h].size()) MassUnit(h, begin, scratch);
    }
  }
}

void PrefillAttention::MassUnit(int kv_head, uint32_t begin, std::span<float> scratch) {
  const int heads = shape_.QueryHeadsPerKvHead();
  const uint32_t num_rows = static_cast<uint32_t>(queries_.rows[kv_head].size());
  for (int tile = 0; tile < num_tiles_; ++tile) {
    const size_t first = size_t(tile) * tile_tokens_;
    const size_t state = (kv_head * queries_.positions.size() + first) * heads;
    kernel_.prefill_mass({
        .tile = Tile(kv_head, tile),
        .begin = begin,
        .end = std::min(begin + kPrefillChunkRows, num_rows),
        .m = m_.data() + state,
        .l = l_.data() + state,
        .scratch = scratch,
        .mass = queries_.mass.per_query_head.data() + kv_head * heads,
    });
  }
}

}  // namespace ebb
