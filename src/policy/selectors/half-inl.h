// Loads vectors of f16 numbers. Each instruction set includes this file once.
#if defined(EBB_POLICY_SELECTORS_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_POLICY_SELECTORS_HALF_INL_H_
#undef EBB_POLICY_SELECTORS_HALF_INL_H_
#else
#define EBB_POLICY_SELECTORS_HALF_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Loads numbers in f16 and converts them to f32. REQUIRES: the numbers are finite.
template <class D>
HWY_INLINE hn::Vec<D> LoadF16(D d, const uint16_t* from) {
#if (HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2) || HWY_ARCH_ARM_A64
  const hn::Rebind<hwy::float16_t, D> d16;
  return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
#else
  // Scales by the difference of the exponent biases of f32 and f16, 127 - 15 = 112.
  constexpr float kF16Step = 0x1p112f;
  const hn::Rebind<uint16_t, D> d16;
  const hn::RebindToUnsigned<D> du;
  const auto bits = hn::PromoteTo(du, hn::LoadU(d16, from));
  const auto magnitude = hn::BitCast(d, hn::ShiftLeft<13>(hn::And(bits, hn::Set(du, 0x7fffu))));
  const auto sign = hn::ShiftLeft<16>(hn::And(bits, hn::Set(du, 0x8000u)));
  return hn::Or(hn::Mul(magnitude, hn::Set(d, kF16Step)), hn::BitCast(d, sign));
#endif
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif  // EBB_POLICY_SELECTORS_HALF_INL_H_
