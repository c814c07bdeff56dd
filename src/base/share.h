// Shares of rows, counted alike by what places rows and by what foretells it.
#ifndef EBB_BASE_SHARE_H_
#define EBB_BASE_SHARE_H_

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <optional>

#include "ebb/tiers.h"

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

// Of `num_alive` unprotected rows, of `num_ever` that there ever were: the share that was asked for
// or, where rows may go at all and the caps leave room for `room` of them in full precision, what
// they do not hold.
[[nodiscard]] inline size_t NumToEvict(const TierSpec& spec, size_t num_ever, size_t num_alive,
                                       std::optional<size_t> room) {
  const auto less = [](size_t a, size_t b) { return a > b ? a - b : 0; };
  const size_t of_share = spec.evict_of == EvictOf::kAlive
                              ? FloorShare(spec.evict_share, num_alive)
                              : less(FloorShare(spec.evict_share, num_ever), num_ever - num_alive);
  if (spec.evict_share == 0 || !room.has_value()) return of_share;
  return std::max(of_share, less(num_alive, MostAlive(spec.t2_share, *room)));
}

}  // namespace ebb

#endif  // EBB_BASE_SHARE_H_
