// f16 numbers, as selectors store what they keep of keys.
#ifndef EBB_POLICY_SELECTORS_HALF_H_
#define EBB_POLICY_SELECTORS_HALF_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace ebb {

inline constexpr float kLargestF16 = 65504;

// Rounds to the nearest f16, of two to the even one. Numbers beyond f16 become its largest, NaN 0.
inline uint16_t F16Of(float x) {
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

// REQUIRES: the number is finite.
inline float FloatOfF16(uint16_t x) {
  const float magnitude = std::bit_cast<float>((x & 0x7fffu) << 13) * 0x1p112f;
  return (x & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace ebb

#endif  // EBB_POLICY_SELECTORS_HALF_H_
