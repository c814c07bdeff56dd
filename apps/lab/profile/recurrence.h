// Measures in a run how many steps tokens get no attention before they matter again: the maximum
// recurrence interval of "LazyEviction" (section 3 and Eq. 1).
#ifndef EBB_APPS_PROFILE_RECURRENCE_H_
#define EBB_APPS_PROFILE_RECURRENCE_H_

#include <span>
#include <vector>

namespace ebb::cli {

// kActiveShare is the share of the attention, averaged over layers and heads, from which on a token
// counts as active in a step. [ours: the paper asks each query head by itself]
inline constexpr double kActiveShare = 1e-4;

// RecurrenceTracker measures after how many steps tokens get attention again.
class RecurrenceTracker {
 public:
  // Adds a decode step. `mass` is the attention of each position and `sum` its sum. Positions
  // beyond those of the step before are new and count as active just before this step.
  void Observe(std::span<const double> mass, double sum);

  // Returns for each position the largest number of decode steps between two steps in which the
  // token was active; 0 if it was active in no step.
  [[nodiscard]] const std::vector<int>& intervals() const { return intervals_; }

 private:
  int step_ = 0;
  std::vector<int> last_active_;  // by position: step
  std::vector<int> intervals_;
};

}  // namespace ebb::cli

#endif  // EBB_APPS_PROFILE_RECURRENCE_H_
