// RunningMean is a mean with weights that decay exponentially.
#ifndef EBB_BASE_RUNNING_MEAN_H_
#define EBB_BASE_RUNNING_MEAN_H_

#include <cmath>

namespace ebb {

// RunningMean gives a value `memory` values back a weight of 1/e.
struct RunningMean {
  double memory = 0, sum = 0, weight = 0;

  void Add(double value, double times = 1) {
    const double kept = std::exp(-times / memory);
    sum = sum * kept + value * times;
    weight = weight * kept + times;
  }
  void WeighAtMost(double most) {
    if (weight <= most) return;
    sum *= most / weight;
    weight = most;
  }
  // Returns the mean. REQUIRES: not empty.
  [[nodiscard]] double value() const { return sum / weight; }
  [[nodiscard]] bool empty() const { return weight == 0; }
};

}  // namespace ebb

#endif  // EBB_BASE_RUNNING_MEAN_H_
