// Measures in a run whether the tokens that matter now mattered some steps ago: how much of the
// half of the tokens with the most attention was in that half a given number of decode steps
// earlier ("LazyEviction", section 3 and Fig. 2b).
#ifndef EBB_APPS_PROFILE_TOP_HALF_H_
#define EBB_APPS_PROFILE_TOP_HALF_H_

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace ebb::cli {

// Returns, in any order, the positions of the `share` (rounded up) of the tokens with any attention
// that got the most of it; of equal tokens the earlier ones.
[[nodiscard]] std::vector<int32_t> MostImportant(std::span<const double> mass, double share);

// TopHalfHistory measures how long tokens stay among the half with the most attention.
class TopHalfHistory {
 public:
  static constexpr int kDistances = 11;  // 1, 2, 4 ... 1024 decode steps

  // Kept sums up, for one distance, the shares of the steps that were compared.
  struct Kept {
    int64_t steps = 0;  // that had one so far before them
    double shares = 0;  // their sum
  };

  // Adds a decode step. `mass` is the attention of each position; positions without any are not
  // counted.
  void Observe(std::span<const double> mass);

  // Returns, for each distance 2^i, the shares of a step's top half that was in the top half 2^i
  // steps before, among the tokens that existed then.
  [[nodiscard]] const std::array<Kept, kDistances>& kept() const { return kept_; }

 private:
  std::deque<std::vector<bool>> steps_;  // the last ones' top halves, by position; the newest last
  std::array<Kept, kDistances> kept_ = {};
};

}  // namespace ebb::cli

#endif  // EBB_APPS_PROFILE_TOP_HALF_H_
