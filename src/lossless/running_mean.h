// A mean in which what lies far back weighs little.
#ifndef EBB_LOSSLESS_RUNNING_MEAN_H_
#define EBB_LOSSLESS_RUNNING_MEAN_H_

#include <cmath>

namespace ebb {

// A value `memory` values back weighs 1/e.
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
  // REQUIRES: not empty.
  [[nodiscard]] double value() const { return sum / weight; }
  [[nodiscard]] bool empty() const { return weight == 0; }
};

}  // namespace ebb

#endif  // EBB_LOSSLESS_RUNNING_MEAN_H_
