// TopHalfHistory measures whether the tokens that matter now have mattered some steps ago: which
// part of the half of the tokens with the most attention was in that half a given number of decode
// steps earlier ("LazyEviction", section 3 and Fig. 2b).
#ifndef EBB_APPS_PROFILE_TOP_HALF_H_
#define EBB_APPS_PROFILE_TOP_HALF_H_

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace ebb::cli {

// Returns the positions, in any order, of the tokens with the most attention: a share `share`
// (rounded up) of the tokens that got any. Of tokens with equal attention, the earlier ones come
// first.
[[nodiscard]] std::vector<int32_t> MostImportant(std::span<const double> mass, double share);

// TopHalfHistory measures how long tokens stay among the half with the most attention.
class TopHalfHistory {
 public:
  static constexpr int kDistances = 11;  // distances of 1, 2, 4, ..., 1024 decode steps

  // Kept adds up, for one distance, the share of each step's top half that was in the top half
  // before.
  struct Kept {
    int64_t steps = 0;  // steps that have a step at this distance before them
    double shares = 0;  // sum of the steps' shares
  };

  // Adds a decode step. `mass` is the attention to each position; positions without any are not
  // counted.
  void Observe(std::span<const double> mass);

  // Returns, for each distance 2^i, how much of a step's top half was in the top half 2^i steps
  // before, among the tokens that existed then.
  [[nodiscard]] const std::array<Kept, kDistances>& kept() const { return kept_; }

 private:
  std::deque<std::vector<bool>> steps_;  // top halves of the last steps, [positions]; newest last
  std::array<Kept, kDistances> kept_ = {};
};

}  // namespace ebb::cli

#endif  // EBB_APPS_PROFILE_TOP_HALF_H_
