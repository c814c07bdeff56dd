// RecurrenceTracker measures how many steps a token gets no attention before it matters again: the
// maximum recurrence interval of "LazyEviction" (section 3 and Eq. 1).
#ifndef EBB_APPS_PROFILE_RECURRENCE_H_
#define EBB_APPS_PROFILE_RECURRENCE_H_

#include <span>
#include <vector>

namespace ebb::cli {

// kActiveShare is the least share of the attention, averaged over layers and heads, with which a
// token is active in a step. The paper judges each query head separately; the average is ebb's
// choice.
inline constexpr double kActiveShare = 1e-4;

// RecurrenceTracker measures after how many steps tokens get attention again.
class RecurrenceTracker {
 public:
  // Adds a decode step. `mass` is the attention to each position, and `sum` its sum. Positions that
  // the step before did not have are new; they count as active just before this step.
  void Observe(std::span<const double> mass, double sum);

  // Returns for each position the largest number of decode steps between two steps in which the
  // token was active; 0 if it was active in no step.
  [[nodiscard]] const std::vector<int>& intervals() const { return intervals_; }

 private:
  int step_ = 0;
  std::vector<int> last_active_;  // [positions]: number of the step
  std::vector<int> intervals_;
};

}  // namespace ebb::cli

#endif  // EBB_APPS_PROFILE_RECURRENCE_H_
