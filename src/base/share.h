// Shares of rows, counted alike by what places rows and by what foretells it.
#ifndef EBB_BASE_SHARE_H_
#define EBB_BASE_SHARE_H_

#include <cmath>
#include <cstddef>
#include <limits>

namespace ebb {

// 29 % of 100 rows are 29 rows, although 0.29 * 100 is a little less than 29.
[[nodiscard]] inline size_t FloorShare(double share, size_t num_rows) {
  constexpr double kRounding = 1e-6;
  return static_cast<size_t>(std::floor(share * static_cast<double>(num_rows) + kRounding));
}

// The most rows of which no more than `room` stay in full precision once T2 has its share.
[[nodiscard]] inline size_t MostAlive(double t2_share, size_t room) {
  if (t2_share >= 1) return std::numeric_limits<size_t>::max();
  auto most = static_cast<size_t>(static_cast<double>(room) / (1 - t2_share));
  while (most - FloorShare(t2_share, most) > room) --most;
  while (most + 1 - FloorShare(t2_share, most + 1) <= room) ++most;
  return most;
}

}  // namespace ebb

#endif  // EBB_BASE_SHARE_H_
