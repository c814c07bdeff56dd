// Computes the expected results of attention, and how much a kernel may differ from them.
#ifndef EBB_ATTENTION_EXPECTED_FOR_TEST_H_
#define EBB_ATTENTION_EXPECTED_FOR_TEST_H_

#include <algorithm>
#include <barrier>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "src/attention/attention.h"

namespace ebb {

// Returns the name of every kernel of this machine except the reference.
inline std::vector<std::string> KernelNames() {
  std::vector<std::string> names;
  for (const AttentionKernel& kernel : AllAttentionKernels()) {
    if (kernel.name != ReferenceAttention().name) names.emplace_back(kernel.name);
  }
  return names;
}

inline const AttentionKernel& KernelByName(const std::string& name) {
  return **AttentionByName(name);
}

inline AttentionShape ShapeOf(RowType type, int head_dim, int num_kv_heads, int heads_per_kv) {
  return {.num_q_heads = num_kv_heads * heads_per_kv,
          .num_kv_heads = num_kv_heads,
          .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
          .format = {.type = type, .head_dim = head_dim}};
}

// Calls each phase(thread) on num_threads threads, with a barrier after each phase.
template <typename... Phase>
void RunOnThreads(int num_threads, const Phase&... phases) {
  std::barrier barrier(num_threads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < num_threads; ++thread) {
    threads.emplace_back([&, thread] { (..., (phases(thread), barrier.arrive_and_wait())); });
  }
  for (std::thread& thread : threads) thread.join();
}

struct Expected {
  std::vector<float> out;                // [num_tokens, num_q_heads, head_dim]
  std::vector<std::vector<float>> mass;  // [num_q_heads][rows], summed over the tokens
  float max_logit_terms = 0;             // largest sum of |q[i] * key[i]| * scale of a visible row
  float max_value = 0;                   // largest |value| of a row
};

// Computes the result by the reference in double, over all rows at once: without chunks, tiles or
// merging.
inline Expected Expect(const AttentionShape& shape, std::span<const RowsView> views, const float* q,
                       std::span<const Position> positions) {
  const AttentionKernel& reference = ReferenceAttention();
  const int dim = shape.format.head_dim;
  const int heads = shape.QueryHeadsPerKvHead();
  const size_t token_stride = size_t(shape.num_q_heads) * dim;
  Expected expected;
  expected.out.resize(positions.size() * token_stride);
  std::vector<float> m(positions.size() * heads), l(m.size()), row(dim);
  for (int h = 0; h < shape.num_kv_heads; ++h) {
    const RowsView& rows = views[h];
    const size_t first = size_t(h) * heads * dim;
    const PrefillInput tile = {.format = shape.format,
                               .rows = &rows,
                               .q = q + first,
                               .q_token_stride = token_stride,
                               .q_head_stride = size_t(dim),
                               .positions = positions.data(),
                               .num_queries = static_cast<int>(positions.size()),
                               .num_heads = heads,
                               .scale = shape.scale,
                               .soft_cap = shape.soft_cap};
    reference.prefill(tile, {.o = expected.out.data() + first,
                             .o_token_stride = token_stride,
                             .m = m.data(),
                             .l = l.data(),
                             .scratch = {}});
    std::vector<float*> targets;
    for (int g = 0; g < heads; ++g) expected.mass.emplace_back(rows.size(), 0.0f);
    for (int g = 0; g < heads; ++g) targets.push_back(expected.mass[h * heads + g].data());
    reference.prefill_mass({.tile = tile,
                            .begin = 0,
                            .end = static_cast<uint32_t>(rows.size()),
                            .m = m.data(),
                            .l = l.data(),
                            .scratch = {},
                            .mass = targets.data()});
    for (size_t r = 0; r < rows.size(); ++r) {
      const Slot slot = rows.slots[r];
      const std::byte* key = rows.pages[slot.page()] + slot.row() * shape.format.RowStride();
      reference.load_row(shape.format.type, key + shape.format.ValueOffset(), row.data(), dim);
      for (const float x : row) expected.max_value = std::max(expected.max_value, std::fabs(x));
      reference.load_row(shape.format.type, key, row.data(), dim);
      for (size_t head = 0; head < positions.size() * heads; ++head) {
        const float* query = q + head / heads * token_stride + first + head % heads * dim;
        float terms = 0;
        for (int i = 0; i < dim; ++i) terms += std::fabs(query[i] * row[i] * shape.scale);
        expected.max_logit_terms = std::max(expected.max_logit_terms, terms);
      }
    }
  }
  return expected;
}

// Returns k * eps, the relative tolerance. A logit in float is off by a few eps of the sum of its
// terms' magnitudes, since errors of random sign cancel. The relative error of a weight exp(logit -
// m) is twice that. An output averages values by weights; a mass is a weight of at most 1. Measured
// errors are at most half of this.
inline float RelativeTolerance(const Expected& expected) {
  return (2 + expected.max_logit_terms / 2) * std::numeric_limits<float>::epsilon();
}

// Fails on NaN too, since every comparison with NaN is false.
inline void ExpectNear(std::span<const float> got, std::span<const float> want, float tolerance,
                       const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (size_t i = 0; i < got.size(); ++i) {
    const float error = std::fabs(got[i] - want[i]);
    ASSERT_TRUE(error <= tolerance) << what << ": element " << i << " is " << got[i] << ", not "
                                    << want[i] << " within " << tolerance;
  }
}

// Expects that the mass is neither uniform, which would hide a wrong row, nor concentrated in one
// row, which would hide all others.
inline void ExpectNonTrivial(const Expected& expected, int num_tokens) {
  for (const std::vector<float>& mass : expected.mass) {
    if (mass.size() < 32) continue;
    const float largest = *std::max_element(mass.begin(), mass.end()) / num_tokens;
    EXPECT_GT(largest, 3.0f / mass.size());
    EXPECT_LT(largest, 0.9f);
  }
}

}  // namespace ebb

#endif  // EBB_ATTENTION_EXPECTED_FOR_TEST_H_
