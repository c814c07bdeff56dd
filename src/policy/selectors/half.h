// Converts f16 numbers, the format in which selectors store keys.
#ifndef EBB_POLICY_SELECTORS_HALF_H_
#define EBB_POLICY_SELECTORS_HALF_H_

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace ebb {

inline constexpr float kLargestF16 = 65504;

// Returns the nearest f16, of two equally near ones the even one. Numbers beyond the range of f16
// become its largest number, NaN becomes 0.
inline uint16_t F16Of(float x) {
  if (x != x) return 0;
  const uint32_t sign = std::bit_cast<uint32_t>(x) >> 31 << 15;
  const float magnitude = std::min(std::abs(x), kLargestF16);
  uint32_t bits = std::bit_cast<uint32_t>(magnitude);
  if (magnitude < 0x1p-14f) {
    // Rounds to a subnormal f16 by adding 0.5, whose last place in f32 is that of f16's subnormal
    // numbers.
    bits = std::bit_cast<uint32_t>(magnitude + 0.5f) - std::bit_cast<uint32_t>(0.5f);
  } else {
    bits = (bits + 0xfff + (bits >> 13 & 1) - (112u << 23)) >> 13;
  }
  return static_cast<uint16_t>(sign | bits);
}

// Converts a number in f16 to f32. REQUIRES: the number is finite.
inline float FloatOfF16(uint16_t x) {
  const float magnitude = std::bit_cast<float>((x & 0x7fffu) << 13) * 0x1p112f;
  return (x & 0x8000) != 0 ? -magnitude : magnitude;
}

}  // namespace ebb

#endif  // EBB_POLICY_SELECTORS_HALF_H_
