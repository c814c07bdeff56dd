// The exponential function of attention. Included once per instruction set by cpu.cc.
#if defined(EBB_ATTENTION_EXP_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_ATTENTION_EXP_INL_H_
#undef EBB_ATTENTION_EXP_INL_H_
#else
#define EBB_ATTENTION_EXP_INL_H_
#endif

#include "hwy/contrib/math/math-inl.h"
#include "hwy/highway.h"
#include "src/attention/rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

// Highway's Exp() makes 0 of NaN, which would hide a key that holds one.
HWY_INLINE VecF ExpOrNaN(VecF x) { return hn::IfThenElse(hn::IsNaN(x), x, hn::Exp(F32(), x)); }

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif  // EBB_ATTENTION_EXP_INL_H_
