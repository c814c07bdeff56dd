#include "apps/lab/profile/top_half.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

namespace ebb::cli {

std::vector<int32_t> MostImportant(std::span<const double> mass, double share) {
  std::vector<int32_t> rows;
  for (size_t p = 0; p < mass.size(); ++p) {
    if (mass[p] > 0) rows.push_back(static_cast<int32_t>(p));
  }
  const auto count = static_cast<size_t>(std::ceil(share * static_cast<double>(rows.size())));
  std::nth_element(
      rows.begin(), rows.begin() + static_cast<ptrdiff_t>(count), rows.end(),
      [&](int32_t a, int32_t b) { return mass[a] > mass[b] || (mass[a] == mass[b] && a < b); });
  rows.resize(count);
  return rows;
}

void TopHalfHistory::Observe(std::span<const double> mass) {
  const std::vector<int32_t> rows = MostImportant(mass, 0.5);
  for (int i = 0; i < kDistances; ++i) {
    const size_t distance = size_t{1} << i;
    if (distance > steps_.size()) break;
    const std::vector<bool>& before = steps_[steps_.size() - distance];
    int64_t there = 0, common = 0;
    for (const int32_t row : rows) {
      if (static_cast<size_t>(row) >= before.size()) continue;
      ++there;
      common += before[row] ? 1 : 0;
    }
    if (there == 0) continue;
    ++kept_[i].steps;
    kept_[i].shares += static_cast<double>(common) / static_cast<double>(there);
  }
  std::vector<bool> top(mass.size());
  for (const int32_t row : rows) top[row] = true;
  steps_.push_back(std::move(top));
  if (steps_.size() > size_t{1} << (kDistances - 1)) steps_.pop_front();
}

}  // namespace ebb::cli
