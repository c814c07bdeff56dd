#include "src/policy/score_loops.h"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/policy/score_loops.cc"  // NOLINT(build/include)
#include "hwy/foreach_target.h"                         // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// kLog2 holds the coefficients of the polynomial for log2, highest power first.
inline constexpr float kLog2[] = {0.0204903465f, -0.0960662514f, 0.21558854f, -0.339247763f,
                                  0.477705926f,  -0.721162736f,  1.44269323f};
inline constexpr float kLeastMass = 1e-30f;
inline constexpr size_t kSums = 16;

using F32 = hn::ScalableTag<float>;
using VecF = hn::Vec<F32>;

// Adds weight * mass, rounding the product and the sum separately: a fused multiply-add would give
// other bits than machines without that instruction.
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

// Returns -x log2 x for lanes that hold probabilities, and 0 for other lanes. The polynomial is
// log2(1 + u) / u on [0, 1]. Products and sums are not fused, so that results are the same bits
// everywhere.
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

// Sums up in kSums lanes, independent of the width of a vector, so that all instruction sets add in
// the same order.
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

// Maps a float to an integer so that integers compare as the floats do.
int32_t RankOf(float score) {
  const auto bits = std::bit_cast<int32_t>(score);
  return bits >= 0 ? bits : bits ^ 0x7fffffff;
}
float ScoreOf(int32_t rank) { return std::bit_cast<float>(rank >= 0 ? rank : rank ^ 0x7fffffff); }

struct Reached {
  float score;
  size_t by;  // how many
};

// Returns the highest score that at least `count` scores reach, or any number that exactly `count`
// scores reach. Bisects the ranks between one that all scores reach and one that too few reach.
Reached HighestReached(const float* scores, size_t num_scores, size_t count) {
  const F32 d;
  VecF lowest = hn::Set(d, std::numeric_limits<float>::infinity()), highest = hn::Neg(lowest);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= num_scores; i += hn::Lanes(d)) {
    lowest = hn::Min(lowest, hn::LoadU(d, scores + i));
    highest = hn::Max(highest, hn::LoadU(d, scores + i));
  }
  for (; i < num_scores; ++i) {
    lowest = hn::Min(lowest, hn::Set(d, scores[i]));
    highest = hn::Max(highest, hn::Set(d, scores[i]));
  }
  int64_t reached = RankOf(hn::GetLane(hn::MinOfLanes(d, lowest)));
  int64_t missed = int64_t{RankOf(hn::GetLane(hn::MaxOfLanes(d, highest)))} + 1;
  size_t by = num_scores;
  while (by > count && missed - reached > 1) {
    const int64_t middle = (reached + missed) >> 1;
    const size_t reaching =
        CountReaching(scores, num_scores, ScoreOf(static_cast<int32_t>(middle)));
    if (reaching >= count) by = reaching;
    (reaching >= count ? reached : missed) = middle;
  }
  return {ScoreOf(static_cast<int32_t>(reached)), by};
}

void MarkReaching(const float* scores, size_t num_scores, float least, uint8_t* marks) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const hn::Rebind<uint8_t, F32> d8;
  const VecF bar = hn::Set(d, least);
  size_t i = 0;
  for (; i + hn::Lanes(d) <= num_scores; i += hn::Lanes(d)) {
    const auto reaches = hn::RebindMask(di, hn::Ge(hn::LoadU(d, scores + i), bar));
    const auto ones = hn::DemoteTo(d8, hn::IfThenElseZero(reaches, hn::Set(di, 1)));
    hn::StoreU(hn::Or(hn::LoadU(d8, marks + i), ones), d8, marks + i);
  }
  for (; i < num_scores; ++i) marks[i] |= scores[i] >= least ? 1 : 0;
}

void MarkHighestOf(const float* scores, size_t num_scores, size_t count, uint8_t* marks) {
  const Reached reached = HighestReached(scores, num_scores, count);
  if (reached.by == count) {
    MarkReaching(scores, num_scores, reached.score, marks);
    return;
  }
  // Compares by value, because 0 and -0 have different ranks but are equal scores: the next score
  // above both zeros has rank 1.
  const float above = ScoreOf(reached.score == 0 ? 1 : RankOf(reached.score) + 1);
  MarkReaching(scores, num_scores, above, marks);
  size_t num_left = count - CountReaching(scores, num_scores, above);
  for (size_t i = 0; num_left > 0; ++i) {
    if (scores[i] != reached.score) continue;
    marks[i] = 1;
    --num_left;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>
#include <cassert>

namespace ebb {
namespace {

HWY_EXPORT(AddMassTo);
HWY_EXPORT(AddWeightedMassTo);
HWY_EXPORT(EntropyOf);
HWY_EXPORT(LowestOf);
HWY_EXPORT(MarkHighestOf);

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

void MarkHighest(std::span<const float> scores, size_t count, std::span<uint8_t> marks) {
  assert(count <= scores.size() && marks.size() == scores.size());
  if (count == 0) return;
  HWY_DYNAMIC_DISPATCH(MarkHighestOf)(scores.data(), scores.size(), count, marks.data());
}

}  // namespace ebb

#endif  // HWY_ONCE
