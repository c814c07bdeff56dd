// Numbers that many tests name.
#ifndef EBB_TESTS_SUPPORT_NUMBERS_H_
#define EBB_TESTS_SUPPORT_NUMBERS_H_

#include <cstdint>
#include <limits>

namespace ebb {

inline constexpr uint64_t kMiB = uint64_t{1} << 20;
inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_NUMBERS_H_
