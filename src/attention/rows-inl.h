// Accesses rows by vectors: widening loads, rounding stores, addresses of visible rows. Compiled
// once per instruction set (cpu_kernels.h).
#if defined(EBB_ATTENTION_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef EBB_ATTENTION_ROWS_INL_H_
#undef EBB_ATTENTION_ROWS_INL_H_
#else
#define EBB_ATTENTION_ROWS_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <limits>

#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "src/attention/attention.h"

HWY_BEFORE_NAMESPACE();
namespace ebb {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using VecF = hn::Vec<F32>;
inline constexpr int kLanes = HWY_MAX_BYTES / sizeof(float);

// Returns the vector, and keeps the compiler from reading it from memory again at each use: more
// reads than multiplications bound the speed.
HWY_INLINE VecF InRegister(VecF vector) {
#if HWY_ARCH_X86 && HWY_TARGET <= HWY_SSSE3
  __asm__("" : "+v"(vector.raw));
#endif
  return vector;
}

// EBB_UNROLL unrolls a loop. HWY_UNROLL would do so too, but accepts no template parameter in g++
// 12. All loops that use it are short and have a constant length.
#undef EBB_UNROLL
#if HWY_COMPILER_CLANG
#define EBB_UNROLL _Pragma("unroll")
#else
#define EBB_UNROLL _Pragma("GCC unroll 32")
#endif

// RowF32 and the structs below load and store elements of the RowType in their name.
struct RowF32 {
  static constexpr size_t kBytes = 4;
  static HWY_INLINE VecF Load(const std::byte* row, int i) {
    return hn::LoadU(F32(), reinterpret_cast<const float*>(row) + i);
  }
  static HWY_INLINE void Store(VecF v, std::byte* row, int i) {
    hn::StoreU(v, F32(), reinterpret_cast<float*>(row) + i);
  }
};

// kHasF16 says whether the target has instructions for f16. Without them, Highway 1.0.3 reads
// infinity and NaN as numbers and wraps on overflow, so that ebb converts itself.
inline constexpr bool kHasF16 = !(HWY_ARCH_X86 && HWY_TARGET >= HWY_SSE4);

HWY_INLINE VecF InfinitiesOfF16(VecF v) {
  const F32 d;
  const VecF infinity = hn::Set(d, std::numeric_limits<float>::infinity());
  return hn::IfThenElse(hn::Ge(hn::Abs(v), hn::Set(d, 65536.0f)), hn::Or(v, infinity), v);
}

HWY_INLINE hn::Vec<hn::RebindToSigned<F32>> RoundToF16(VecF v) {
  const F32 d;
  const hn::RebindToSigned<F32> di;
  const VecF magnitude = hn::Abs(v);
  const auto bits = hn::BitCast(di, magnitude);
  const auto sign = hn::And(hn::ShiftRight<16>(hn::BitCast(di, v)), hn::Set(di, 0x8000));
  const auto odd = hn::And(hn::ShiftRight<13>(bits), hn::Set(di, 1));
  const auto normal =
      hn::ShiftRight<13>(hn::Add(bits, hn::Add(odd, hn::Set(di, 0xfff - ((127 - 15) << 23)))));
  // Adding 0.5 rounds to the precision of f16's subnormal numbers, which is that of 0.5's last
  // place.
  const VecF half = hn::Set(d, 0.5f);
  const auto subnormal = hn::Sub(hn::BitCast(di, hn::Add(magnitude, half)), hn::BitCast(di, half));
  const auto is_normal = hn::RebindMask(di, hn::Ge(magnitude, hn::Set(d, 0x1p-14f)));
  const auto infinite = hn::RebindMask(di, hn::Ge(magnitude, hn::Set(d, 65520.0f)));
  auto rounded = hn::IfThenElse(is_normal, normal, subnormal);
  rounded = hn::IfThenElse(infinite, hn::Set(di, 0x7c00), rounded);
  rounded = hn::IfThenElse(hn::RebindMask(di, hn::IsNaN(v)), hn::Set(di, 0x7e00), rounded);
  return hn::Or(rounded, sign);
}

struct RowF16 {
  static constexpr size_t kBytes = 2;
  static HWY_INLINE VecF Load(const std::byte* row, int i) {
    const hn::Rebind<hwy::float16_t, F32> d16;
    const auto v16 = hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(row) + i);
    const VecF v = hn::PromoteTo(F32(), v16);
    return kHasF16 ? v : InfinitiesOfF16(v);
  }
  static HWY_INLINE void Store(VecF v, std::byte* row, int i) {
    if constexpr (kHasF16) {
      const hn::Rebind<hwy::float16_t, F32> d16;
      hn::StoreU(hn::DemoteTo(d16, v), d16, reinterpret_cast<hwy::float16_t*>(row) + i);
    } else {
      const hn::Rebind<uint16_t, F32> d16;
      const auto v16 = hn::DemoteTo(d16, RoundToF16(v));
      hn::StoreU(v16, d16, reinterpret_cast<uint16_t*>(row) + i);
    }
  }
};

struct RowBf16 {
  static constexpr size_t kBytes = 2;
  static HWY_INLINE VecF Load(const std::byte* row, int i) {
    const hn::Rebind<hwy::bfloat16_t, F32> d16;
    return hn::PromoteTo(F32(), hn::LoadU(d16, reinterpret_cast<const hwy::bfloat16_t*>(row) + i));
  }
  static HWY_INLINE void Store(VecF v, std::byte* row, int i) {
    // Rounds to nearest even and keeps NaN; Highway 1.0.3 would truncate.
    const hn::RebindToUnsigned<F32> du;
    const hn::Rebind<uint16_t, F32> d16;
    const auto bits = hn::BitCast(du, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fff)));
    const auto nan = hn::Or(bits, hn::Set(du, 0x400000));
    const auto is_nan = hn::RebindMask(du, hn::IsNaN(v));
    const auto top = hn::ShiftRight<16>(hn::IfThenElse(is_nan, nan, rounded));
    const hn::RebindToSigned<decltype(du)> di;
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, top)), d16, reinterpret_cast<uint16_t*>(row) + i);
  }
};

// Calls body(Row{}) with the struct for rows of `type`.
template <typename Body>
HWY_INLINE void WithRowType(RowType type, const Body& body) {
  switch (type) {
    case RowType::kF16:
      return body(RowF16{});
    case RowType::kBf16:
      return body(RowBf16{});
    case RowType::kF32:
      return body(RowF32{});
  }
}

HWY_INLINE const std::byte* KeyRow(const RowsView& rows, Slot slot, size_t stride) {
  return rows.pages[slot.page()] + slot.row() * stride;
}

inline void StoreRow(RowType type, const float* from, std::byte* to, int head_dim) {
  WithRowType(type, [&](auto row) HWY_ATTR {
    for (int i = 0; i < head_dim; i += kLanes)
      decltype(row)::Store(hn::LoadU(F32(), from + i), to, i);
  });
}

inline void LoadRow(RowType type, const std::byte* from, float* to, int head_dim) {
  WithRowType(type, [&](auto row) HWY_ATTR {
    for (int i = 0; i < head_dim; i += kLanes)
      hn::StoreU(decltype(row)::Load(from, i), F32(), to + i);
  });
}

}  // namespace HWY_NAMESPACE
}  // namespace ebb
HWY_AFTER_NAMESPACE();

#endif  // EBB_ATTENTION_ROWS_INL_H_
