// Defines vectors of integers, and AVX-512's sums of their products. Compiled once per instruction
// set (cpu_kernels.h).
#if defined(EBB_ATTENTION_VNNI_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_ATTENTION_VNNI_INL_H_
#undef EBB_ATTENTION_VNNI_INL_H_
#else
#define EBB_ATTENTION_VNNI_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "src/attention/rows-inl.h"

namespace ebb {
namespace HWY_NAMESPACE {

using I32 = hn::RebindToSigned<F32>;
using U32 = hn::RebindToUnsigned<F32>;
using I16 = hn::Repartition<int16_t, F32>;
using U16 = hn::Repartition<uint16_t, F32>;
using U8 = hn::Repartition<uint8_t, F32>;
using VecI = hn::Vec<I32>;
inline constexpr int kWords = 2 * kLanes;  // 16-bit numbers per vector
inline constexpr int kVectorBytes = 4 * kLanes;

// Dots selects how products of integers are summed. kVnni needs AVX-512 VNNI.
enum class Dots { kPortable, kVnni };

}  // namespace HWY_NAMESPACE
}  // namespace ebb

#if HWY_TARGET == HWY_AVX3
HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {

// The functions below are written in assembly, since no target of Highway 1.0.3 has these
// instructions.

// Computes sum[i] + a[2i] * b[2i] + a[2i + 1] * b[2i + 1].
HWY_INLINE VecI AddPairs(VecI sum, hn::Vec<I16> a, hn::Vec<I16> b) {
  __asm__("vpdpwssd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
}
// Computes sum[i] + the products of four bytes: unsigned ones of a, signed ones of b.
HWY_INLINE VecI AddQuads(VecI sum, hn::Vec<U8> a, hn::Vec<hn::RebindToSigned<U8>> b) {
  __asm__("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
}
// Computes the same as AddQuads(), with the same four bytes at `b` for every sum.
HWY_INLINE VecI AddQuadsOfAll(VecI sum, hn::Vec<U8> a, const int8_t* b) {
  struct Quad {
    int8_t bytes[4];
  };
  __asm__("vpdpbusd %2%{1to16%}, %1, %0"
          : "+v"(sum.raw)
          : "v"(a.raw), "m"(*reinterpret_cast<const Quad*>(b)));
  return sum;
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();
#endif  // HWY_TARGET == HWY_AVX3

#endif  // EBB_ATTENTION_VNNI_INL_H_
