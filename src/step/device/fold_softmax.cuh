// Device functions for the running softmax of the CUDA kernels that attend to full-precision rows
// and to rows of T2. C++17, because nvcc compiles this file.
#ifndef EBB_STEP_DEVICE_FOLD_SOFTMAX_CUH_
#define EBB_STEP_DEVICE_FOLD_SOFTMAX_CUH_

#include <cuda_runtime.h>

#include <cmath>

namespace ebb {

constexpr int kWarp = 32;
constexpr float kLog2e = 1.4426950408889634f;
constexpr float kHidden = -INFINITY;  // the logit of a row that a query does not see
constexpr unsigned kAllLanes = 0xffffffffu;

// Returns 2^(logit - largest), and 0 for a hidden row, also while `largest` is minus infinity.
__device__ inline float Factor(float logit, float largest) {
  return logit == kHidden ? 0.0f : exp2f(logit - largest);
}

// Adds a tile of rows to the running softmax of each query: rescales the sums so far to the new
// largest logit, and replaces the tile's logits by weights.
template <int kRows, int kQueries, int kElements>
__device__ inline void AddToSoftmax(float (&logits)[kRows][kQueries], float (&largest)[kQueries],
                                    float (&weight)[kQueries], float (&sum)[kQueries][kElements]) {
#pragma unroll
  for (int i = 0; i < kQueries; ++i) {
    float now = largest[i];
#pragma unroll
    for (int r = 0; r < kRows; ++r) now = fmaxf(now, logits[r][i]);
    const float factor = Factor(largest[i], now);
    largest[i] = now;
    weight[i] *= factor;
#pragma unroll
    for (int e = 0; e < kElements; ++e) sum[i][e] *= factor;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      logits[r][i] = Factor(logits[r][i], now);
      weight[i] += logits[r][i];
    }
  }
}

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_FOLD_SOFTMAX_CUH_
