#include "src/base/text/near_names.h"

#include <algorithm>
#include <cctype>
#include <numeric>
#include <utility>

namespace ebb {
namespace {

// Returns how many letters must be changed, inserted, removed or swapped with the next one to make
// `b` of `a`, ignoring case.
size_t EditDistance(std::string_view a, std::string_view b) {
  const auto same = [](unsigned char left, unsigned char right) {
    return std::toupper(left) == std::toupper(right);
  };
  std::vector<size_t> before;  // the row above `above`
  std::vector<size_t> above(b.size() + 1);
  std::iota(above.begin(), above.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    std::vector<size_t> row = {i + 1};
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t change = above[j] + (same(a[i], b[j]) ? 0 : 1);
      row.push_back(std::min({change, row[j] + 1, above[j + 1] + 1}));
      const bool is_swap = i > 0 && j > 0 && same(a[i], b[j - 1]) && same(a[i - 1], b[j]);
      if (is_swap) row.back() = std::min(row.back(), before[j - 1] + 1);
    }
    before = std::exchange(above, std::move(row));
  }
  return above.back();
}

}  // namespace

std::vector<std::string> NearNames(std::string_view wanted, std::vector<std::string> names,
                                   size_t count) {
  std::ranges::stable_sort(names, {},
                           [&](const std::string& name) { return EditDistance(wanted, name); });
  if (names.size() > count) names.resize(count);
  return names;
}

std::optional<std::string> LikelyMeant(std::string_view wanted, std::vector<std::string> names) {
  constexpr size_t kMostEdits = 2;
  std::vector<std::string> nearest = NearNames(wanted, std::move(names), 1);
  if (nearest.empty()) return std::nullopt;
  const size_t edits = EditDistance(wanted, nearest.front());
  const size_t most = std::min(kMostEdits, std::max<size_t>(1, wanted.size() / 3));
  return edits <= most ? std::optional(std::move(nearest.front())) : std::nullopt;
}

}  // namespace ebb
