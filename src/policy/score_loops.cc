#include "src/policy/score_loops.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/policy/score_loops.cc"  // NOLINT(build/include)
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Highest power first.
inline constexpr float kLog2[] = {0.0204903465f, -0.0960662514f, 0.21558854f, -0.339247763f,
                                  0.477705926f,  -0.721162736f,  1.44269323f};
inline constexpr float kLeastMass = 1e-30f;
inline constexpr size_t kSums = 16;
// By what exponents of f16 are further off those of f32.
inline constexpr float kF16Step = 0x1p112f;
// Ranges that are read from memory, page after page of a table of megabytes.
inline constexpr size_t kBytesAhead = 4096, kLineBytes = 64;

using F32 = hn::ScalableTag<float>;
using VecF = hn::Vec<F32>;

// A product and a sum, each rounded: where they are fused the result would be another.
void AddMassTo(const float* mass, float weight, size_t num_rows, float* scores) {
  const F32 d;
  const VecF factor = hn::Set(d, weight);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= num_rows; i += hn::Lanes(d)) {
    const VecF received = hn::LoadU(d, mass + i);
    const VecF finite = hn::IfThenElseZero(hn::IsFinite(received), received);
    hn::StoreU(hn::Add(hn::LoadU(d, scores + i), hn::Mul(factor, finite)), d, scores + i);
  }
  for (; i < num_rows; ++i) scores[i] += weight * (std::isfinite(mass[i]) ? mass[i] : 0.0f);
}

void AddWeightedMassTo(const float* mass, const float* weights, size_t num_rows, float* scores) {
  const F32 d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= num_rows; i += hn::Lanes(d)) {
    const VecF received = hn::LoadU(d, mass + i);
    const VecF finite = hn::IfThenElseZero(hn::IsFinite(received), received);
    const VecF weighted = hn::Mul(hn::LoadU(d, weights + i), finite);
    hn::StoreU(hn::Add(hn::LoadU(d, scores + i), weighted), d, scores + i);
  }
  for (; i < num_rows; ++i) scores[i] += weights[i] * (std::isfinite(mass[i]) ? mass[i] : 0.0f);
}

float LowestOf(const float* scores, size_t num_rows) {
  const F32 d;
  VecF lowest = hn::Set(d, std::numeric_limits<float>::infinity());
  const auto lower = [&](VecF score)
                         HWY_ATTR { return hn::IfThenElse(hn::Lt(score, lowest), score, lowest); };
  size_t i = 0;
  for (; i + hn::Lanes(d) <= num_rows; i += hn::Lanes(d)) lowest = lower(hn::LoadU(d, scores + i));
  for (; i < num_rows; ++i) lowest = lower(hn::Set(d, scores[i]));
  return hn::GetLane(hn::MinOfLanes(d, lowest));
}

// -x log2 x of the lanes that are probabilities, else 0. The polynomial is log2(1 + u) / u on
// [0, 1]; no product is fused with a sum.
template <typename D>
HWY_INLINE hn::Vec<D> EntropyTerms(D d, hn::Vec<D> mass) {
  const hn::RebindToSigned<D> di;
  const auto counts = hn::And(hn::Gt(mass, hn::Set(d, kLeastMass)), hn::Lt(mass, hn::Set(d, 2.0f)));
  const auto x = hn::IfThenElse(counts, mass, hn::Set(d, 1.0f));
  const auto bits = hn::BitCast(di, x);
  const auto exponent = hn::ConvertTo(d, hn::Sub(hn::ShiftRight<23>(bits), hn::Set(di, 127)));
  const auto mantissa = hn::Or(hn::And(bits, hn::Set(di, 0x007fffff)), hn::Set(di, 0x3f800000));
  const auto u = hn::Sub(hn::BitCast(d, mantissa), hn::Set(d, 1.0f));
  auto p = hn::Set(d, kLog2[0]);
  for (size_t i = 1; i < std::size(kLog2); ++i) p = hn::Add(hn::Mul(p, u), hn::Set(d, kLog2[i]));
  return hn::Neg(hn::Mul(x, hn::Add(exponent, hn::Mul(p, u))));
}

// kSums sums side by side, whatever a vector holds.
float EntropyOf(const float* mass, size_t num_rows) {
  const hn::CappedTag<float, kSums> d;
  constexpr size_t kVectors = kSums / hn::MaxLanes(d);
  float sums[kSums] = {};
  hn::Vec<decltype(d)> sum[kVectors];
  for (auto& of_vector : sum) of_vector = hn::Zero(d);
  size_t i = 0;
  for (; i + kSums <= num_rows; i += kSums) {
    for (size_t v = 0; v < kVectors; ++v) {
      const auto received = hn::LoadU(d, mass + i + v * hn::Lanes(d));
      sum[v] = hn::Add(sum[v], EntropyTerms(d, received));
    }
  }
  for (size_t v = 0; v < kVectors; ++v) hn::StoreU(sum[v], d, sums + v * hn::Lanes(d));
  const hn::CappedTag<float, 1> one;
  for (; i < num_rows; ++i) {
    sums[i % kSums] += hn::GetLane(EntropyTerms(one, hn::Set(one, mass[i])));
  }
  float bits = 0;
  for (const float of_lane : sums) bits += of_lane;
  return bits;
}

// Of kSums numbers in vectors: i and i + 8, then i + 4, then the four that are left, in the same
// order whatever a vector holds.
template <class D, size_t kVectors>
HWY_INLINE float SumOf([[maybe_unused]] D d, hn::Vec<D> (&sum)[kVectors]) {
  float four[4];
#if HWY_TARGET == HWY_SCALAR
  for (size_t i = 0; i < 4; ++i) {
    four[i] = hn::GetLane(hn::Add(hn::Add(sum[i], sum[i + 8]), hn::Add(sum[i + 4], sum[i + 12])));
  }
#else
  for (size_t vectors = kVectors; vectors > 1; vectors /= 2) {
    for (size_t v = 0; v < vectors / 2; ++v) sum[v] = hn::Add(sum[v], sum[v + vectors / 2]);
  }
  if constexpr (hn::MaxLanes(d) == 16) {
    const hn::Half<D> half;
    const hn::Half<hn::Half<D>> quarter;
    const auto eight = hn::Add(hn::LowerHalf(half, sum[0]), hn::UpperHalf(half, sum[0]));
    hn::StoreU(hn::Add(hn::LowerHalf(quarter, eight), hn::UpperHalf(quarter, eight)), quarter,
               four);
  } else if constexpr (hn::MaxLanes(d) == 8) {
    const hn::Half<D> half;
    hn::StoreU(hn::Add(hn::LowerHalf(half, sum[0]), hn::UpperHalf(half, sum[0])), half, four);
  } else {
    hn::StoreU(sum[0], d, four);
  }
#endif
  return (four[0] + four[2]) + (four[1] + four[3]);
}

// Of numbers in f16 that are finite.
template <class D>
HWY_INLINE hn::Vec<D> LoadF16(D d, const uint16_t* from) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
#else
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::PromoteTo(du, hn::LoadU(d16, from));
  const auto magnitude = hn::BitCast(d, hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7fffu))));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
  return hn::Or(hn::Mul(magnitude, hn::Set(d, kF16Step)), hn::BitCast(d, sign));
#endif
}

// The bounds of a page for kQueries queries at once, which read it one time.
template <size_t kQueries>
HWY_INLINE void BoundsOfPage(const float* q, const uint16_t* low, size_t dim, float* bounds,
                             size_t stride) {
  const hn::CappedTag<float, kSums> d;
  constexpr size_t kVectors = kSums / hn::MaxLanes(d);
  static_assert(kVectors * hn::MaxLanes(d) == kSums, "vectors of a known size");
  const uint16_t* high = low + dim;
  hn::Vec<decltype(d)> sums[kQueries][kVectors];
  for (auto& of_query : sums) {
    for (auto& sum : of_query) sum = hn::Zero(d);
  }
  size_t c = 0;
  for (; c + kSums <= dim; c += kSums) {
    for (size_t v = 0; v < kVectors; ++v) {
      const size_t at = c + v * hn::Lanes(d);
      const auto lowest = LoadF16(d, low + at), highest = LoadF16(d, high + at);
      for (size_t i = 0; i < kQueries; ++i) {
        const auto x = hn::LoadU(d, q + i * dim + at);
        sums[i][v] = hn::Add(sums[i][v], hn::Max(hn::Mul(x, lowest), hn::Mul(x, highest)));
      }
    }
  }
  for (size_t i = 0; i < kQueries; ++i) {
    float bound = SumOf(d, sums[i]);
    for (size_t rest = c; rest < dim; ++rest) {
      const hn::CappedTag<float, 1> one;
      const float x = q[i * dim + rest];
      bound += HWY_MAX(x * hn::GetLane(LoadF16(one, low + rest)),
                       x * hn::GetLane(LoadF16(one, high + rest)));
    }
    bounds[i * stride] = bound;
  }
}

template <size_t kQueries>
void BoundsOfQueries(const float* q, size_t dim, const uint16_t* ranges, size_t num_pages,
                     float* bounds) {
  const size_t numbers = 2 * dim, ahead = kBytesAhead / sizeof(uint16_t);
  for (size_t page = 0; page < num_pages; ++page) {
    const uint16_t* range = ranges + page * numbers;
    for (size_t i = 0; i < numbers; i += kLineBytes / sizeof(uint16_t)) {
      hwy::Prefetch(range + ahead + i);
    }
    BoundsOfPage<kQueries>(q, range, dim, bounds + page, num_pages);
  }
  const F32 d;
  size_t i = 0;
  for (; i + hn::Lanes(d) <= kQueries * num_pages; i += hn::Lanes(d)) {
    const VecF bound = hn::LoadU(d, bounds + i);
    hn::StoreU(hn::IfThenElseZero(hn::IsFinite(bound), bound), d, bounds + i);
  }
  for (; i < kQueries * num_pages; ++i) bounds[i] = std::isfinite(bounds[i]) ? bounds[i] : 0;
}

void BoundsTo(const float* q, size_t num_queries, size_t dim, const uint16_t* ranges,
              size_t num_pages, float* bounds) {
  for (; num_queries >= 4; num_queries -= 4, q += 4 * dim, bounds += 4 * num_pages) {
    BoundsOfQueries<4>(q, dim, ranges, num_pages, bounds);
  }
  if (num_queries == 3) BoundsOfQueries<3>(q, dim, ranges, num_pages, bounds);
  if (num_queries == 2) BoundsOfQueries<2>(q, dim, ranges, num_pages, bounds);
  if (num_queries == 1) BoundsOfQueries<1>(q, dim, ranges, num_pages, bounds);
}

size_t CountReaching(const float* scores, size_t num_scores, float least) {
  const F32 d;
  const VecF bar = hn::Set(d, least);
  size_t count = 0, i = 0;
  for (; i + hn::Lanes(d) <= num_scores; i += hn::Lanes(d)) {
    count += hn::CountTrue(d, hn::Ge(hn::LoadU(d, scores + i), bar));
  }
  for (; i < num_scores; ++i) count += scores[i] >= least ? 1 : 0;
  return count;
}

// Floats in their order, as integers.
int32_t RankOf(float score) {
  const auto bits = std::bit_cast<int32_t>(score);
  return bits >= 0 ? bits : bits ^ 0x7fffffff;
}
float ScoreOf(int32_t rank) { return std::bit_cast<float>(rank >= 0 ? rank : rank ^ 0x7fffffff); }

// Halves the ranks between what all reach and what too few do.
float HighestReached(const float* scores, size_t num_scores, size_t count) {
  int64_t reached = RankOf(-std::numeric_limits<float>::infinity());
  int64_t missed = int64_t{RankOf(std::numeric_limits<float>::infinity())} + 1;
  while (missed - reached > 1) {
    const int64_t middle = (reached + missed) >> 1;
    const size_t reaching =
        CountReaching(scores, num_scores, ScoreOf(static_cast<int32_t>(middle)));
    if (reaching == count) return ScoreOf(static_cast<int32_t>(middle));
    (reaching > count ? reached : missed) = middle;
  }
  return ScoreOf(static_cast<int32_t>(reached));
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>
#include <cassert>

namespace ebb {
namespace {

constexpr float kLargestF16 = 65504;

// To the nearest, of two to the even one.
uint16_t F16Of(float x) {
  if (x != x) return 0;
  const uint32_t sign = std::bit_cast<uint32_t>(x) >> 31 << 15;
  const float magnitude = std::min(std::abs(x), kLargestF16);
  uint32_t bits = std::bit_cast<uint32_t>(magnitude);
  if (magnitude < 0x1p-14f) {
    // The last place of 0.5 is that of f16's subnormal numbers.
    bits = std::bit_cast<uint32_t>(magnitude + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  } else {
    bits = (bits + 0xfff + (bits >> 13 & 1) - (112u << 23)) >> 13;
  }
  return static_cast<uint16_t>(sign | bits);
}

// Numbers in f16 in their order.
int RankOfF16(uint16_t x) { return (x & 0x8000) != 0 ? -(x & 0x7fff) : x; }

HWY_EXPORT(AddMassTo);
HWY_EXPORT(AddWeightedMassTo);
HWY_EXPORT(EntropyOf);
HWY_EXPORT(LowestOf);
HWY_EXPORT(BoundsTo);
HWY_EXPORT(HighestReached);

}  // namespace

void AddMass(std::span<const float> mass, float weight, std::span<float> scores) {
  assert(mass.size() == scores.size());
  HWY_DYNAMIC_DISPATCH(AddMassTo)(mass.data(), weight, scores.size(), scores.data());
}

void AddWeightedMass(std::span<const float> mass, std::span<const float> weights,
                     std::span<float> scores) {
  assert(mass.size() == scores.size() && weights.size() == scores.size());
  HWY_DYNAMIC_DISPATCH(AddWeightedMassTo)
  (mass.data(), weights.data(), scores.size(), scores.data());
}

float EntropyBits(std::span<const float> mass) {
  return HWY_DYNAMIC_DISPATCH(EntropyOf)(mass.data(), mass.size());
}

float LowestScore(std::span<const float> scores) {
  return HWY_DYNAMIC_DISPATCH(LowestOf)(scores.data(), scores.size());
}

void BeginRange(std::span<uint16_t> range) {
  const size_t dim = range.size() / 2;
  std::fill_n(range.begin(), dim, F16Of(kLargestF16));
  std::fill_n(range.begin() + dim, dim, F16Of(-kLargestF16));
}

void WidenRange(std::span<const float> key, std::span<uint16_t> range) {
  assert(range.size() == 2 * key.size());
  for (size_t c = 0; c < key.size(); ++c) {
    const uint16_t x = F16Of(key[c]);
    uint16_t& low = range[c];
    uint16_t& high = range[key.size() + c];
    if (RankOfF16(x) < RankOfF16(low)) low = x;
    if (RankOfF16(x) > RankOfF16(high)) high = x;
  }
}

void BoundProducts(std::span<const float> q, size_t dim, std::span<const uint16_t> ranges,
                   std::span<float> bounds) {
  const size_t num_queries = q.size() / dim, num_pages = ranges.size() / (2 * dim);
  assert(bounds.size() == num_queries * num_pages);
  HWY_DYNAMIC_DISPATCH(BoundsTo)
  (q.data(), num_queries, dim, ranges.data(), num_pages, bounds.data());
}

float HighestReachedBy(std::span<const float> scores, size_t count) {
  assert(count > 0 && count <= scores.size());
  return HWY_DYNAMIC_DISPATCH(HighestReached)(scores.data(), scores.size(), count);
}

}  // namespace ebb

#endif  // HWY_ONCE
