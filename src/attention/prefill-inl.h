// Computes prefill attention: a tile of queries over all rows, as two small matrix products per
// chunk. Vector lanes are queries, so that softmax needs no sums across lanes and keys need no
// transposition: a head's tokens are adjacent lanes, followed by the next head's. Compiled once per
// instruction set (cpu_kernels.h).
#if defined(EBB_ATTENTION_PREFILL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_ATTENTION_PREFILL_INL_H_
#undef EBB_ATTENTION_PREFILL_INL_H_
#else
#define EBB_ATTENTION_PREFILL_INL_H_
#endif

#include <algorithm>
#include <limits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/attention/attention.h"
#include "src/attention/exp-inl.h"
#include "src/attention/prefill_sizes.h"
#include "src/attention/rows-inl.h"
#include "src/base/fetch_ahead.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

// kBlock is how many rows (or channels) a micro-kernel keeps in registers, together with up to
// kMaxVecs vectors of lanes.
inline constexpr int kBlock = kLanes == 16 ? 8 : 4;
inline constexpr int kMaxVecs = 3;
// kNoMax is the initial maximum, far below any logit: exp(-inf - kNoMax) is 0, but exp(-inf - -inf)
// would be NaN.
inline constexpr float kNoMax = -1e30f;

inline int QueryTile(int num_heads) { return QueryTileOf(kLanes, num_heads); }

HWY_INLINE int NumVecs(int num_heads, int num_queries) {
  return (num_heads * num_queries + kLanes - 1) / kLanes;
}

// TileScratch points to the parts of a tile's scratch memory. `width` is num_vecs * kLanes.
struct TileScratch {
  int num_vecs;
  int width;
  float* q;         // [head_dim, width], transposed and scaled
  float* rows;      // [kPrefillChunkRows, head_dim]: keys, later values
  float* logits;    // [kPrefillChunkRows, width]
  float* o;         // [head_dim, width]
  float* m;         // [width]
  float* l;         // [width]
  float* shrink;    // [width]
  float* position;  // [width]: of the lane's token, relative to the tile's first

  HWY_INLINE TileScratch(std::span<float> scratch, const PrefillInput& in) {
    const int head_dim = in.format.head_dim;
    num_vecs = NumVecs(in.num_heads, in.num_queries);
    width = num_vecs * kLanes;
    float* at = scratch.data();
    const auto take = [&](size_t n) {
      float* taken = at;
      at += n;
      return taken;
    };
    q = take(size_t(head_dim) * width);
    rows = take(size_t(kPrefillChunkRows) * head_dim);
    logits = take(size_t(kPrefillChunkRows) * width);
    o = take(size_t(head_dim) * width);
    m = take(width);
    l = take(width);
    shrink = take(width);
    position = take(width);
  }
};

inline size_t PrefillScratchFloats(int num_heads, int head_dim) {
  return PrefillScratchFloatsOf(kLanes, num_heads, head_dim);
}

// Returns the lane of token t and head g.
HWY_INLINE int LaneOf(const PrefillInput& in, int t, int g) { return g * in.num_queries + t; }

HWY_INLINE void LoadQueries(const PrefillInput& in, const TileScratch& s) {
  const int head_dim = in.format.head_dim;
  const int used = in.num_heads * in.num_queries;
  for (int lane = 0; lane < s.width; ++lane) {
    // Lanes beyond the last query repeat the last query; their results are not used.
    const int query = std::min(lane, used - 1);
    const int t = query % in.num_queries, g = query / in.num_queries;
    const float* q = in.q + t * in.q_token_stride + g * in.q_head_stride;
    for (int c = 0; c < head_dim; ++c) s.q[size_t(c) * s.width + lane] = q[c] * in.scale;
    s.position[lane] = static_cast<float>(in.positions[t] - in.positions[0]);
  }
}

// HalfRows is either the keys or the values of some rows.
struct HalfRows {
  uint32_t begin;
  int num_rows;
  size_t offset;  // offset of the keys or values in a page
};

HWY_INLINE HalfRows KeysOf(uint32_t begin, int num_rows) { return {begin, num_rows, 0}; }
HWY_INLINE HalfRows ValuesOf(const PrefillInput& in, uint32_t begin, int num_rows) {
  return {begin, num_rows, in.format.ValueOffset()};
}

HWY_INLINE const std::byte* RowOf(const PrefillInput& in, HalfRows rows, int r) {
  return KeyRow(*in.rows, in.rows->slots[rows.begin + r], in.format.RowStride()) + rows.offset;
}

// Converts keys or values to floats.
HWY_INLINE void WidenRows(const PrefillInput& in, HalfRows rows, float* to) {
  const F32 d;
  const int head_dim = in.format.head_dim;
  WithRowType(in.format.type, [&](auto row) HWY_ATTR {
    for (int r = 0; r < rows.num_rows; ++r) {
      const std::byte* from = RowOf(in, rows, r);
      for (int c = 0; c < head_dim; c += kLanes) {
        hn::StoreU(decltype(row)::Load(from, c), d, to + size_t(r) * head_dim + c);
      }
    }
  });
}

// RowsAhead is the rows that are converted next. They are prefetched a few at a time while products
// are computed, because more reads than the processor can have outstanding would stall it.
struct RowsAhead {
  const PrefillInput* in;
  HalfRows rows;

  // Prefetches a part of the rows: [begin, end) of `all` parts.
  HWY_INLINE void Fetch(int begin, int end, int all) const {
    const int last = std::min(rows.num_rows, end * kPrefillChunkRows / all);
    for (int r = begin * kPrefillChunkRows / all; r < last; ++r) {
      const std::byte* row = RowOf(*in, rows, r);
      for (size_t i = 0; i < in->format.RowStride(); i += kCacheLineBytes) hwy::Prefetch(row + i);
    }
  }
};

// Computes c[i][v] += sum over k of a[i * a_row + k * a_step] * b[k][v] for i < kRows: the matrix
// product of both passes.
template <int kRows, int kVecs>
HWY_INLINE void MicroKernel(int depth, const float* a, size_t a_row, size_t a_step, const float* b,
                            size_t b_row, float* c, size_t c_row) {
  const F32 d;
  VecF sum[kRows][kVecs];
  EBB_UNROLL
  for (int i = 0; i < kRows; ++i) {
    EBB_UNROLL
    for (int v = 0; v < kVecs; ++v) sum[i][v] = hn::LoadU(d, c + i * c_row + v * kLanes);
  }
  for (int k = 0; k < depth; ++k) {
    VecF right[kVecs];
    EBB_UNROLL
    for (int v = 0; v < kVecs; ++v) {
      right[v] = InRegister(hn::LoadU(d, b + k * b_row + v * kLanes));
    }
    EBB_UNROLL
    for (int i = 0; i < kRows; ++i) {
      const VecF left = hn::Set(d, a[i * a_row + k * a_step]);
      EBB_UNROLL
      for (int v = 0; v < kVecs; ++v) sum[i][v] = hn::MulAdd(left, right[v], sum[i][v]);
    }
  }
  EBB_UNROLL
  for (int i = 0; i < kRows; ++i) {
    EBB_UNROLL
    for (int v = 0; v < kVecs; ++v) hn::StoreU(sum[i][v], d, c + i * c_row + v * kLanes);
  }
}

template <int kVecs>
HWY_NOINLINE void MultiplyVecs(int rows, int depth, const float* a, size_t a_row, size_t a_step,
                               const float* b, size_t b_row, float* c, size_t c_row,
                               const RowsAhead& ahead) {
  int i = 0;
  for (; i + kBlock <= rows; i += kBlock) {
    ahead.Fetch(i, i + kBlock, rows);
    MicroKernel<kBlock, kVecs>(depth, a + i * a_row, a_row, a_step, b, b_row, c + i * c_row, c_row);
  }
  for (; i < rows; ++i) {
    MicroKernel<1, kVecs>(depth, a + i * a_row, a_row, a_step, b, b_row, c + i * c_row, c_row);
  }
}

// Computes c[rows, width] += a * b[depth, width], in blocks of nearly equally many vectors.
HWY_INLINE void Multiply(int num_vecs, int rows, int depth, const float* a, size_t a_row,
                         size_t a_step, const float* b, float* c, RowsAhead ahead) {
  const size_t width = size_t(num_vecs) * kLanes;
  const int blocks = (num_vecs + kMaxVecs - 1) / kMaxVecs;
  for (int block = 0, first = 0; block < blocks; ++block) {
    const int n = (num_vecs - first) / (blocks - block);
    const float* right = b + first * kLanes;
    float* to = c + first * kLanes;
    if (n == 1) MultiplyVecs<1>(rows, depth, a, a_row, a_step, right, width, to, width, ahead);
    if (n == 2) MultiplyVecs<2>(rows, depth, a, a_row, a_step, right, width, to, width, ahead);
    if (n == 3) MultiplyVecs<3>(rows, depth, a, a_row, a_step, right, width, to, width, ahead);
    first += n;
    ahead.rows.num_rows = 0;
  }
}

// Returns a position relative to the tile's first token, clamped to [-1, 2^24 - 1], so that it is
// exact as a float. -1 means any position before the tile, 2^24 - 1 any position after it.
HWY_INLINE float FromTile(const PrefillInput& in, Position position) {
  constexpr int64_t kBehind = (1 << 24) - 1;
  const int64_t distance = int64_t{position} - in.positions[0];
  return static_cast<float>(std::clamp<int64_t>(distance, -1, kBehind));
}

// Computes logits[r][lane] of rows [begin, begin + num_rows); -inf if the lane's token does not see
// the row. Prefetches `next`, the rows that are converted next.
HWY_INLINE void TileLogits(const PrefillInput& in, uint32_t begin, int num_rows, HalfRows next,
                           const TileScratch& s) {
  const F32 d;
  WidenRows(in, KeysOf(begin, num_rows), s.rows);
  std::fill(s.logits, s.logits + size_t(num_rows) * s.width, 0.0f);
  Multiply(s.num_vecs, num_rows, in.format.head_dim, s.rows, in.format.head_dim, 1, s.q, s.logits,
           {&in, next});
  if (in.soft_cap != 0) CapLogits(in.soft_cap, s.logits, s.width, num_rows, s.width);

  const RowsView& rows = *in.rows;
  const bool hides_some =
      !rows.last_visible.empty() ||
      (rows.window > 0 && in.positions[in.num_queries - 1] - rows.positions[begin] >= rows.window);
  const bool all_seen = !hides_some && rows.positions[begin + num_rows - 1] <= in.positions[0];
  if (all_seen) return;
  const VecF hidden = hn::Set(d, -std::numeric_limits<float>::infinity());
  for (int r = 0; r < num_rows; ++r) {
    const VecF first = hn::Set(d, FromTile(in, rows.positions[begin + r]));
    const VecF last = hn::Set(d, FromTile(in, rows.LastVisible(begin + r)));
    float* logits = s.logits + size_t(r) * s.width;
    for (int v = 0; v < s.width; v += kLanes) {
      const VecF at = hn::LoadU(d, s.position + v);
      const auto seen = hn::And(hn::Le(first, at), hn::Le(at, last));
      hn::StoreU(hn::IfThenElse(seen, hn::LoadU(d, logits + v), hidden), d, logits + v);
    }
  }
}

// Replaces logits by exp(logit - m) in place, updates m and l, and sets shrink = exp(old m - new
// m).
HWY_INLINE void TileSoftmax(int num_rows, const TileScratch& s) {
  const F32 d;
  for (int v = 0; v < s.width; v += kLanes) {
    const VecF before = hn::LoadU(d, s.m + v);
    VecF max = before;
    for (int r = 0; r < num_rows; ++r) {
      max = hn::Max(max, hn::LoadU(d, s.logits + size_t(r) * s.width + v));
    }
    VecF sum = hn::Zero(d);
    for (int r = 0; r < num_rows; ++r) {
      float* logit = s.logits + size_t(r) * s.width + v;
      const VecF p = ExpOfNonPositive(hn::Sub(hn::LoadU(d, logit), max));
      hn::StoreU(p, d, logit);
      sum = hn::Add(sum, p);
    }
    const VecF shrink = ExpOfNonPositive(hn::Sub(before, max));
    hn::StoreU(shrink, d, s.shrink + v);
    hn::StoreU(max, d, s.m + v);
    hn::StoreU(hn::MulAdd(hn::LoadU(d, s.l + v), shrink, sum), d, s.l + v);
  }
}

HWY_INLINE void ShrinkOutput(int head_dim, const TileScratch& s) {
  const F32 d;
  for (int c = 0; c < head_dim; ++c) {
    for (int v = 0; v < s.width; v += kLanes) {
      float* o = s.o + size_t(c) * s.width + v;
      hn::StoreU(hn::Mul(hn::LoadU(d, o), hn::LoadU(d, s.shrink + v)), d, o);
    }
  }
}

// Writes the tile's outputs. Returns false if one is not finite.
HWY_INLINE bool StoreTile(const PrefillInput& in, const PrefillOutput& out, const TileScratch& s) {
  float faults = 0;  // NaN once an output is not finite, as 0 * infinity is NaN
  for (int t = 0; t < in.num_queries; ++t) {
    for (int g = 0; g < in.num_heads; ++g) {
      const int lane = LaneOf(in, t, g);
      const float inverse = 1.0f / s.l[lane];
      float* to = out.o + t * out.o_token_stride + g * in.format.head_dim;
      for (int c = 0; c < in.format.head_dim; ++c) {
        to[c] = s.o[size_t(c) * s.width + lane] * inverse;
        faults += 0 * to[c];
      }
      if (out.m == nullptr) continue;
      out.m[t * in.num_heads + g] = s.m[lane];
      out.l[t * in.num_heads + g] = s.l[lane];
    }
  }
  return faults == 0;
}

inline bool Prefill(const PrefillInput& in, const PrefillOutput& out) {
  const int head_dim = in.format.head_dim;
  const TileScratch s(out.scratch, in);
  LoadQueries(in, s);
  std::fill(s.m, s.m + s.width, kNoMax);
  std::fill(s.l, s.l + s.width, 0.0f);
  if (in.sinks != nullptr) {
    for (int lane = 0; lane < in.num_heads * in.num_queries; ++lane) {
      s.m[lane] = in.sinks[lane / in.num_queries];
      s.l[lane] = 1;
    }
  }
  std::fill(s.o, s.o + size_t(head_dim) * s.width, 0.0f);

  const Position last_query = in.positions[in.num_queries - 1];
  const uint32_t num_rows = static_cast<uint32_t>(in.rows->size());
  const auto rows_from = [&](uint32_t first) {
    const int chunk_rows = first == 0 ? in.first_chunk_rows : kPrefillChunkRows;
    return static_cast<int>(std::min<uint32_t>(chunk_rows, num_rows - first));
  };
  for (uint32_t begin = 0, n = 0; begin < num_rows; begin += n) {
    if (in.rows->positions[begin] > last_query) break;
    n = rows_from(begin);
    const HalfRows values = ValuesOf(in, begin, n);
    TileLogits(in, begin, n, values, s);
    TileSoftmax(n, s);
    ShrinkOutput(head_dim, s);
    WidenRows(in, values, s.rows);
    // Adds the values: o[c][lane] += values[r][c] * p[r][lane].
    Multiply(s.num_vecs, head_dim, n, s.rows, 1, head_dim, s.logits, s.o,
             {&in, KeysOf(begin + n, rows_from(begin + n))});
  }
  return StoreTile(in, out, s);
}

// Returns the sum of values[begin, begin + n). REQUIRES: the whole vectors that contain these
// values can be read.
HWY_INLINE float SumOfLanesFrom(const float* values, int begin, int n) {
  const F32 d;
  VecF sum = hn::Zero(d);
  for (int v = begin / kLanes * kLanes; v < begin + n; v += kLanes) {
    const VecF lane = hn::Iota(d, static_cast<float>(v));
    const auto is_inside = hn::And(hn::Ge(lane, hn::Set(d, static_cast<float>(begin))),
                                   hn::Lt(lane, hn::Set(d, static_cast<float>(begin + n))));
    sum = hn::Add(sum, hn::IfThenElseZero(is_inside, hn::LoadU(d, values + v)));
  }
  return hn::GetLane(hn::SumOfLanes(d, sum));
}

inline void PrefillMass(const PrefillMassInput& in) {
  const F32 d;
  const PrefillInput& tile = in.tile;
  if (tile.rows->positions[in.begin] > tile.positions[tile.num_queries - 1]) return;
  const TileScratch s(in.scratch, tile);
  LoadQueries(tile, s);
  // Stores 1 / l in `shrink`. Lanes that repeat the last query add 0, because their m is far above
  // any logit.
  std::fill(s.m, s.m + s.width, std::numeric_limits<float>::max());
  std::fill(s.shrink, s.shrink + s.width, 0.0f);
  for (int t = 0; t < tile.num_queries; ++t) {
    for (int g = 0; g < tile.num_heads; ++g) {
      const int lane = LaneOf(tile, t, g);
      s.m[lane] = in.m[t * tile.num_heads + g];
      s.shrink[lane] = 1.0f / in.l[t * tile.num_heads + g];
    }
  }
  const int n = static_cast<int>(in.end - in.begin);
  TileLogits(tile, in.begin, n, KeysOf(in.end, 0), s);
  for (int r = 0; r < n; ++r) {
    float* p = s.logits + size_t(r) * s.width;
    for (int v = 0; v < s.width; v += kLanes) {
      const VecF shown = ExpOfNonPositive(hn::Sub(hn::LoadU(d, p + v), hn::LoadU(d, s.m + v)));
      hn::StoreU(hn::Mul(shown, hn::LoadU(d, s.shrink + v)), d, p + v);
    }
    for (int g = 0; g < tile.num_heads; ++g) {
      in.mass[g][in.begin + r] += SumOfLanesFrom(p, LaneOf(tile, 0, g), tile.num_queries);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif  // EBB_ATTENTION_PREFILL_INL_H_
