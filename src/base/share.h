// Shares of rows, counted alike by what places rows and by what foretells it.
#ifndef EBB_BASE_SHARE_H_
#define EBB_BASE_SHARE_H_

#include <cmath>
#include <cstddef>

namespace ebb {

// 29 % of 100 rows are 29 rows, although 0.29 * 100 is a little less than 29.
[[nodiscard]] inline size_t FloorShare(double share, size_t num_rows) {
  constexpr double kRounding = 1e-6;
  return static_cast<size_t>(std::floor(share * static_cast<double>(num_rows) + kRounding));
}

}  // namespace ebb

#endif  // EBB_BASE_SHARE_H_
