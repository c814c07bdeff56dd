#include "src/policy/scorers/rolling.h"

#include <algorithm>
#include <cmath>

namespace ebb {
namespace {

constexpr double kEpsilon = 1e-6;

}  // namespace

int Rolling::Size() const {
  return static_cast<int>(std::min<int64_t>(count_, static_cast<int64_t>(ring_.size())));
}

void Rolling::Push(float value) {
  ring_[count_ % ring_.size()] = value;
  ++count_;
}

float Rolling::Mean() const {
  const int size = Size();
  double sum = 0;
  for (int i = 0; i < size; ++i) sum += ring_[i];
  return size == 0 ? 0.0f : static_cast<float>(sum / size);
}

float Rolling::ZScore() const {
  const int size = Size();
  if (size == 0) return 0;
  double sum = 0;
  for (int i = 0; i < size; ++i) sum += ring_[i];
  const double mean = sum / size;
  double squares = 0;
  for (int i = 0; i < size; ++i) squares += (ring_[i] - mean) * (ring_[i] - mean);
  const double newest = ring_[(count_ - 1) % ring_.size()];
  return static_cast<float>((newest - mean) / (std::sqrt(squares / size) + kEpsilon));
}

void Rolling::Save(StateWriter* to) const {
  to->Number<int64_t>(count_);
  to->Numbers<float>(ring_);
}

Status Rolling::Load(StateReader* from) {
  count_ = from->Number<int64_t>();
  const std::vector<float> ring = from->Numbers<float>();
  if (count_ < 0 || ring.size() != ring_.size()) {
    from->Fail("a window of another length");
    count_ = 0;
  } else {
    ring_ = ring;
  }
  return from->status();
}

}  // namespace ebb
