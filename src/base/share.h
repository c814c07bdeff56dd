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
  // Beyond any context, and small enough to count in doubles.
  constexpr size_t kMost = size_t{1} << 40;
  const auto fits = [&](size_t rows) { return rows - FloorShare(t2_share, rows) <= room; };
  if (fits(kMost)) return kMost;
  size_t low = 0, high = kMost;  // the one fits, the other does not
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
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
