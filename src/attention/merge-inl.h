// Merges the states of chunks in decode attention: weights of chunks, outputs, mass. Compiled once
// per instruction set (cpu_kernels.h).
#if defined(EBB_ATTENTION_MERGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_ATTENTION_MERGE_INL_H_
#undef EBB_ATTENTION_MERGE_INL_H_
#else
#define EBB_ATTENTION_MERGE_INL_H_
#endif

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "hwy/highway.h"
#include "src/attention/attention.h"
#include "src/attention/exp-inl.h"
#include "src/attention/fold-inl.h"
#include "src/attention/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

// Loads the first `num` of kLanes values and sets the others to `rest`. Copies only if num <
// kLanes, since the copies are function calls.
HWY_INLINE VecF LoadUpTo(const float* from, int num, float rest) {
  const F32 d;
  if (num >= kLanes) return hn::LoadU(d, from);
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, rest);
  std::memcpy(lanes, from, num * sizeof(float));
  return hn::LoadU(d, lanes);
}

HWY_INLINE void StoreUpTo(VecF v, int num, float* to) {
  const F32 d;
  if (num >= kLanes) return hn::StoreU(v, d, to);
  float lanes[kLanes];
  hn::StoreU(v, d, lanes);
  std::memcpy(to, lanes, num * sizeof(float));
}

inline bool ChunkWeights(const MergeInput& in, float* weights) {
  const F32 d;
  constexpr float kLowest = -std::numeric_limits<float>::infinity();
  VecF top = hn::Set(d, kLowest);
  for (int c = 0; c < in.num_chunks; c += kLanes) {
    const VecF m = LoadUpTo(in.m + c, in.num_chunks - c, kLowest);
    top = hn::IfThenElse(hn::Lt(top, m), m, top);  // keeps `top` if m is NaN
  }
  top = hn::MaxOfLanes(d, top);
  const bool has_sink = in.sink != kNoSink;
  if (has_sink) top = hn::Max(top, hn::Set(d, in.sink));
  VecF sum = hn::Zero(d);
  for (int c = 0; c < in.num_chunks; c += kLanes) {
    const int num = in.num_chunks - c;
    const VecF w = ExpOfNonPositive(hn::Sub(LoadUpTo(in.m + c, num, kLowest), top));
    sum = hn::MulAdd(w, LoadUpTo(in.l + c, num, 0.0f), sum);
    StoreUpTo(w, num, weights + c);
  }
  float l = hn::GetLane(hn::SumOfLanes(d, sum));
  if (has_sink) l += hn::GetLane(ExpOfNonPositive(hn::Sub(hn::Set(d, in.sink), top)));
  const float inverse = 1.0f / l;
  for (int c = 0; c < in.num_chunks; ++c) weights[c] *= inverse;
  return std::isfinite(l);
}

// Merges several vectors of channels at once, because one alone is a chain of dependent operations,
// and chunks lie far apart in memory.
inline void Merge(const MergeInput& in, const float* weights, float* out) {
  const F32 d;
  ForChannelBlocks<5>(in.head_dim, [&](auto vecs, int channel) HWY_ATTR {
    constexpr int kVecs = decltype(vecs)::value;
    VecF sum[kVecs];
    EBB_UNROLL
    for (int v = 0; v < kVecs; ++v) sum[v] = hn::Zero(d);
    for (int c = 0; c < in.num_chunks; ++c) {
      const float* o = in.o + c * in.o_stride + channel;
      const VecF weight = hn::Set(d, weights[c]);
      EBB_UNROLL
      for (int v = 0; v < kVecs; ++v) {
        sum[v] = hn::MulAdd(hn::LoadU(d, o + v * kLanes), weight, sum[v]);
      }
    }
    EBB_UNROLL
    for (int v = 0; v < kVecs; ++v) hn::StoreU(sum[v], d, out + channel + v * kLanes);
  });
}

// Adds the mass of rows [begin, end) of a chunk, over kHeads heads.
template <int kHeads>
HWY_INLINE void AddMassOfChunk(const float* p, size_t p_stride, const float* weights,
                               size_t weights_stride, int begin, int end, float* mass) {
  const F32 d;
  VecF weight[kHeads];
  EBB_UNROLL
  for (int g = 0; g < kHeads; ++g) weight[g] = hn::Set(d, weights[g * weights_stride]);
  int r = begin;
  for (; r + kLanes <= end; r += kLanes) {
    VecF sum = hn::LoadU(d, mass + r);
    EBB_UNROLL
    for (int g = 0; g < kHeads; ++g) {
      sum = hn::MulAdd(hn::LoadU(d, p + g * p_stride + r), weight[g], sum);
    }
    hn::StoreU(sum, d, mass + r);
  }
  if (r == end) return;
  // Computes a whole vector also at the end, so that a row's rounding does not depend on where a
  // range ends.
  VecF sum = LoadUpTo(mass + r, end - r, 0.0f);
  EBB_UNROLL
  for (int g = 0; g < kHeads; ++g) {
    sum = hn::MulAdd(LoadUpTo(p + g * p_stride + r, end - r, 0.0f), weight[g], sum);
  }
  StoreUpTo(sum, end - r, mass + r);
}

inline void AddMass(const MassInput& in, float* mass) {
  ForHeadBlocks<kMostChains>(in.num_heads, [&](auto heads, int head) HWY_ATTR {
    const float* p = in.p + head * in.p_stride;
    const float* weights = in.weights + head * in.weights_stride;
    for (size_t row = in.begin; row < in.end;) {
      const size_t chunk = row / kChunkRows;
      const size_t first = chunk * kChunkRows;
      const size_t next = std::min(in.end, first + kChunkRows);
      AddMassOfChunk<decltype(heads)::value>(
          p + chunk * in.p_chunk_stride, in.p_stride, weights + chunk, in.weights_stride,
          static_cast<int>(row - first), static_cast<int>(next - first), mass + first);
      row = next;
    }
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif  // EBB_ATTENTION_MERGE_INL_H_
