// Computes the exponential function of attention and its soft cap. Compiled once per instruction
// set (cpu_kernels.h).
#if defined(EBB_ATTENTION_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_ATTENTION_EXP_INL_H_
#undef EBB_ATTENTION_EXP_INL_H_
#else
#define EBB_ATTENTION_EXP_INL_H_
#endif

#include <cstddef>

#include "hwy/highway.h"
#include "src/attention/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

// Returns e^x for x <= 0, exactly 1 at 0, 0 below -87 and NaN of NaN, within 2 units in the last
// place (the polynomial is off by 3e-9). Highway's Exp() returns 0 of NaN, which would hide a key
// that contains NaN, and takes twice the instructions for a range that is not needed here.
HWY_INLINE VecF ExpOfNonPositive(VecF x) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  // Write x = n * ln 2 + r. Adding 1.5 * 2^23 rounds to an integer in the lowest bits; adding 127
  // makes these bits the exponent of 2^n. The first part of ln 2 has few bits, so that n times it
  // is exact.
  const VecF round = hn::Set(d, 12582912.0f + 127.0f);
  const VecF shifted = hn::MulAdd(x, hn::Set(d, 1.44269504f), round);
  const VecF n = hn::Sub(shifted, round);
  const VecF power = hn::BitCast(d, hn::ShiftLeft<23>(hn::BitCast(du, shifted)));
  const VecF r =
      hn::NegMulAdd(n, hn::Set(d, -2.12194440e-4f), hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x));
  VecF p = hn::Set(d, 1.38145406e-3f);
  p = hn::MulAdd(p, r, hn::Set(d, 8.36874545e-3f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.1668389e-2f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.66665211e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 4.9999994e-1f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  return hn::IfThenElse(hn::Lt(x, hn::Set(d, -87.0f)), hn::Zero(d), hn::Mul(p, power));
}

// Returns cap * tanh(x / cap), and NaN if x is not finite, since a cap would hide an infinite key.
// Near 0, where 1 - e^-2x would lose digits, tanh is computed by its series; its relative error is
// 2e-7.
HWY_INLINE VecF SoftCapped(VecF x, VecF cap, VecF inverse_cap) {
  const F32 d;
  const VecF t = hn::Mul(x, inverse_cap);
  const VecF size = hn::Abs(t);
  const VecF e = ExpOfNonPositive(hn::Mul(hn::Set(d, -2.0f), size));
  const VecF one = hn::Set(d, 1.0f);
  const VecF far = hn::CopySign(hn::Div(hn::Sub(one, e), hn::Add(one, e)), t);
  const VecF square = hn::Mul(t, t);
  VecF series = hn::Set(d, -1382.0f / 155925);
  series = hn::MulAdd(series, square, hn::Set(d, 62.0f / 2835));
  series = hn::MulAdd(series, square, hn::Set(d, -17.0f / 315));
  series = hn::MulAdd(series, square, hn::Set(d, 2.0f / 15));
  series = hn::MulAdd(series, square, hn::Set(d, -1.0f / 3));
  const VecF near = hn::MulAdd(hn::Mul(series, square), t, t);
  const VecF tanh = hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.35f)), near, far);
  return hn::MulAdd(hn::Zero(d), x, hn::Mul(cap, tanh));
}

// Applies the cap to the logits of `rows` arrays, `stride` floats apart, in whole vectors that
// contain the first `count` logits of each.
inline HWY_NOINLINE void CapLogits(float cap, float* logits, size_t stride, int rows, int count) {
  const F32 d;
  const VecF caps = hn::Set(d, cap), inverse = hn::Set(d, 1 / cap);
  for (int r = 0; r < rows; ++r) {
    for (int i = 0; i < count; i += kLanes) {
      float* const at = logits + r * stride + i;
      hn::StoreU(SoftCapped(hn::LoadU(d, at), caps, inverse), d, at);
    }
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif  // EBB_ATTENTION_EXP_INL_H_
