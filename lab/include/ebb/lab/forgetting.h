// Measures the cost of forgetting: how far the output of each attention head is from its output
// with the evicted rows, together with the bounds on that error.
//
// For one query of one head, alpha are the attention weights over all rows, evicted ones included,
// E is the set of evicted rows, A the sum of alpha over E, o the output over all rows, and o' the
// output over the rows that are left, whose weights are renormalised (Eq. 3 of "Not All Thoughts
// Need HBM"). Then
//   o' - o = A o' - sum over E of alpha v.
// The paper's Eq. 4 says |o' - o| <= 2 sum over E of alpha |v|, which is no bound: with v = 0
// evicted at alpha = 1/2 and v = 1 left, the error is 1/2 and the right side 0. By the line above,
//   sum over E of alpha |v| + A |o'|
// is one.
//
// SPDX-License-Identifier: MIT
#ifndef EBB_LAB_FORGETTING_H_
#define EBB_LAB_FORGETTING_H_

#include <cstdint>
#include <span>
#include <vector>

namespace [[gnu::visibility("default")]] ebb {

struct ForgettingCost {
  double error = 0;        // |o' - o|
  double output_norm = 0;  // |o|
  double mass = 0;         // A
  double eq4 = 0;          // 2 sum over E of alpha |v|
  double bound = 0;        // sum over E of alpha |v| + A |o'|
};

// ForgettingRows has all rows of one kv head, evicted ones included, as they were computed.
struct ForgettingRows {
  std::span<const float> keys;       // [num_rows, head_dim]
  std::span<const float> values;     // [num_rows, head_dim]
  std::span<const uint8_t> is_left;  // [num_rows]; 0: evicted
  int head_dim = 0;
};
// Computes the cost, in double. All numbers are 0 if no row is evicted, and NaN if no row is left.
[[nodiscard]] ForgettingCost CostOfForgetting(std::span<const float> query,
                                              const ForgettingRows& rows, double scale);

struct CostSummary {
  double mean = 0;
  double p99 = 0;  // 99th percentile
  double max = 0;
};

// HeadForgetting summarises all decode steps of one query head.
struct HeadForgetting {
  CostSummary relative_error = {};  // |o' - o| / |o|
  CostSummary mass = {};
};

// LayerForgetting summarises all decode steps and query heads of one layer.
struct LayerForgetting {
  CostSummary error = {};
  CostSummary relative_error = {};  // |o' - o| / |o|
  CostSummary mass = {};
  CostSummary eq4 = {};
  CostSummary bound = {};
  std::vector<HeadForgetting> heads = {};
};

struct ForgettingReport {
  int64_t steps = 0;        // decode steps
  int64_t measured = 0;     // (step, layer, query head) triples
  int64_t not_finite = 0;   // triples left out because a number is not finite
  int64_t above_eq4 = 0;    // triples whose error exceeds Eq. 4's right side
  int64_t above_bound = 0;  // triples whose error exceeds `bound`; 0 up to rounding
  std::vector<LayerForgetting> layers = {};
  // mass_by_step and error_by_step are means over layers and heads, [steps].
  std::vector<double> mass_by_step = {};
  std::vector<double> error_by_step = {};  // relative errors
};

}  // namespace ebb

#endif  // EBB_LAB_FORGETTING_H_
