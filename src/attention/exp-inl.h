// The exponential function of attention. Included once per instruction set by cpu.cc.
#if defined(EBB_ATTENTION_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_ATTENTION_EXP_INL_H_
#undef EBB_ATTENTION_EXP_INL_H_
#else
#define EBB_ATTENTION_EXP_INL_H_
#endif

#include "hwy/highway.h"
#include "src/attention/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

// e^x for x <= 0, exactly 1 at 0, 0 below -87 and NaN of NaN. Highway's Exp() makes 0 of NaN, which
// would hide a key that holds one, and takes twice the instructions for the range that is not used
// here. Within 2 units in the last place: the polynomial is off by 3e-9.
HWY_INLINE VecF ExpOfNonPositive(VecF x) {
  const F32 d;
  const hn::RebindToUnsigned<F32> du;
  // x = n * ln 2 + r. Adding 1.5 * 2^23 rounds to an integer, in the lowest bits; 127 more make
  // them the exponent of 2^n. The first part of ln 2 has few bits: n times it is exact.
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

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif  // EBB_ATTENTION_EXP_INL_H_
