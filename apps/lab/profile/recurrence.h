// How long tokens stay unattended before they matter again: the maximum recurrence interval of
// "LazyEviction" (section 3 and Eq. 1), of a run.
#ifndef EBB_APPS_PROFILE_RECURRENCE_H_
#define EBB_APPS_PROFILE_RECURRENCE_H_

#include <span>
#include <vector>

namespace ebb::cli {

// A token is active in a step where it gets at least this share of the attention, averaged over
// layers and heads. [ours: the paper asks each query head by itself]
inline constexpr double kActiveShare = 1e-4;

class RecurrenceTracker {
 public:
  // The attention of one more decode step, by position; tokens beyond the last step's are new, and
  // count as active just before it.
  void Observe(std::span<const double> mass, double sum);

  // By position: the most decode steps between two in which the token was active; 0 when it never
  // was again.
  [[nodiscard]] const std::vector<int>& intervals() const { return intervals_; }

 private:
  int step_ = 0;
  std::vector<int> last_active_;  // by position: step
  std::vector<int> intervals_;
};

}  // namespace ebb::cli

#endif  // EBB_APPS_PROFILE_RECURRENCE_H_
