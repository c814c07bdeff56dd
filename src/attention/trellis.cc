#include "src/attention/trellis.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "src/attention/compressed.h"

namespace ebb {
namespace {

int TwoBits(const std::byte* group, int t) {
  return t < 0 ? 0 : std::to_integer<int>(group[t / 4]) >> (2 * (t % 4)) & 3;
}
int ThirdBit(const std::byte* group, int t) {
  if (t < 0) return 0;
  return std::to_integer<int>(group[16 + t / 4 % 8]) >> (t % 4 + t / 32 * 4) & 1;
}

}  // namespace

void UnpackTrellisKeys(const std::byte* group, int* levels) {
  for (int t = 0; t < kTrellisGroup; ++t) {
    int third_bits = 0;
    for (int back = 0; back < 4; ++back) third_bits |= ThirdBit(group, t - back) << (3 - back);
    levels[KeyAtTime(t)] = kKeyTrellis.first[TwoBits(group, t) << 2 | TwoBits(group, t - 1)] +
                           kKeyTrellis.second[third_bits];
  }
}

void UnpackTrellisValues(const std::byte* group, int* levels) {
  for (int t = 0; t < kTrellisGroup; ++t) {
    levels[ValueAtTime(t)] =
        kValueTrellis.first[TwoBits(group, t) << 2 | TwoBits(group, t - 1)] +
        kValueTrellis.second[TwoBits(group, t - 2) << 2 | TwoBits(group, t - 3)];
  }
}

void MakeKeyMetric(const double* moment, int head_dim, float* metric) {
  // Adds a share of the mean to the diagonal: the queries of a calibration leave directions out.
  constexpr double kShareOfMean = 0.03;
  // Rotates rows and columns.
  std::vector<double> rotated(moment, moment + size_t(head_dim) * head_dim);
  std::vector<float> line(head_dim);
  const auto rotate = [&](size_t first, size_t step) {
    for (int i = 0; i < head_dim; ++i) line[i] = static_cast<float>(rotated[first + i * step]);
    Rotate(line.data(), head_dim);
    for (int i = 0; i < head_dim; ++i) rotated[first + i * step] = line[i];
  };
  for (int i = 0; i < head_dim; ++i) rotate(size_t(i) * head_dim, 1);
  for (int i = 0; i < head_dim; ++i) rotate(i, head_dim);
  for (int first = 0; first < head_dim; first += kMetricBlock) {
    const int n = std::min(kMetricBlock, head_dim - first);
    const auto channel = [&](int t) { return size_t(first) + KeyOfBlockAtTime(t); };
    double mean = 0;
    for (int i = 0; i < n; ++i) mean += rotated[channel(i) * (head_dim + 1)] / n;
    // Factors the block as U * transposed(U), U upper triangular, from the last column on.
    std::vector<double> u(size_t(n) * n);
    for (int i = n - 1; i >= 0; --i) {
      for (int j = i; j >= 0; --j) {
        double sum = (rotated[channel(j) * head_dim + channel(i)] +
                      rotated[channel(i) * head_dim + channel(j)]) /
                     2;
        if (i == j) sum += kShareOfMean * mean + 1e-12;
        for (int k = i + 1; k < n; ++k) sum -= u[size_t(j) * n + k] * u[size_t(i) * n + k];
        u[size_t(j) * n + i] =
            i == j ? std::sqrt(std::max(sum, 1e-12)) : sum / u[size_t(i) * n + i];
      }
    }
    for (int j = 0; j < n; ++j) {
      for (int i = 0; i < n; ++i) {
        const double of_i = u[size_t(i) * n + i];
        const double x = i == j ? of_i * of_i / std::max(mean, 1e-12) : u[size_t(j) * n + i] / of_i;
        metric[size_t(j) * n + i] = i < j ? 0.0F : static_cast<float>(x);
      }
    }
    metric += size_t(n) * n;
  }
}

}  // namespace ebb
