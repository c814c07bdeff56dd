#include "src/policy/score_loops.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "src/policy/score_loops.cc"  // NOLINT(build/include)
#include "hwy/foreach_target.h"                         // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

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

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <cassert>

namespace ebb {
namespace {

HWY_EXPORT(AddMassTo);
HWY_EXPORT(AddWeightedMassTo);
HWY_EXPORT(LowestOf);

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

float LowestScore(std::span<const float> scores) {
  return HWY_DYNAMIC_DISPATCH(LowestOf)(scores.data(), scores.size());
}

}  // namespace ebb

#endif  // HWY_ONCE
