// Whether the tokens that matter now mattered some steps ago: the top half of the tokens, followed
// over decode steps of any distance ("LazyEviction", section 3 and Fig. 2b), of a run.
#ifndef EBB_APPS_PROFILE_TOP_HALF_H_
#define EBB_APPS_PROFILE_TOP_HALF_H_

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

namespace ebb::cli {

// The positions of so large a share of the tokens with any attention (rounded up) that got most of
// it; of equals the earlier. In any order.
[[nodiscard]] std::vector<int32_t> MostImportant(std::span<const double> mass, double share);

class TopHalfHistory {
 public:
  static constexpr int kDistances = 11;  // 1, 2, 4 ... 1024 decode steps

  struct Kept {
    int64_t steps = 0;  // that had one so far before them
    double shares = 0;  // their sum
  };

  // The attention of one more decode step, by position; a token without any is not there.
  void Observe(std::span<const double> mass);

  // By the logarithm of the distance: of the tokens in a step's top half that were there so many
  // steps before, the share that was in the top half then.
  [[nodiscard]] const std::array<Kept, kDistances>& kept() const { return kept_; }

 private:
  std::deque<std::vector<bool>> steps_;  // the last ones' top halves, by position; the newest last
  std::array<Kept, kDistances> kept_ = {};
};

}  // namespace ebb::cli

#endif  // EBB_APPS_PROFILE_TOP_HALF_H_
