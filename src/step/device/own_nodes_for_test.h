// Helpers of tests of ebb's own attention nodes: the backends that can run the nodes, and a struct
// for results.
#ifndef EBB_STEP_DEVICE_OWN_NODES_FOR_TEST_H_
#define EBB_STEP_DEVICE_OWN_NODES_FOR_TEST_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "src/base/ggml_deleter.h"
#include "src/step/device/compressed_rows.h"
#include "src/step/device/row_attention.h"

namespace ebb {

// NodeRunner is a backend and the functions by which it runs ebb's own nodes.
struct NodeRunner {
  std::unique_ptr<ggml_backend, GgmlDeleter> backend;
  DeviceOp attention = {}, fold = {}, unpack = {};
  std::string name;
};

// Returns ggml's backend of the processor and, if the program and the machine have one, that of a
// GPU.
inline std::vector<NodeRunner> NodeRunners() {
  std::vector<NodeRunner> runners(1);
  runners[0].backend.reset(ggml_backend_cpu_init());
  runners[0].name = "CPU";
  for (size_t i = 0; i < ggml_backend_dev_count(); ++i) {
    ggml_backend_dev_t device = ggml_backend_dev_get(i);
    const std::string name = ggml_backend_reg_name(ggml_backend_dev_backend_reg(device));
    if (name != "CUDA" || CudaRowAttention() == nullptr) continue;
    NodeRunner& card = runners.emplace_back();
    card.backend.reset(ggml_backend_dev_init(device, nullptr));
    card.attention.launch = CudaRowAttention();
    card.fold.launch = CudaCompressedFold();
    card.unpack.launch = CudaUnpackRows();
    card.name = name;
    break;
  }
  return runners;
}

// MergeOutcome holds the parts of a merge node's result.
struct MergeOutcome {
  std::vector<float> out, log_sums, mass;
};

inline MergeOutcome OutcomeOf(const RowAttention& attention, const ggml_tensor* merge) {
  std::vector<float> all(attention.MergeSize());
  ggml_backend_tensor_get(merge, all.data(), 0, all.size() * sizeof(float));
  const auto at = all.begin() + static_cast<std::ptrdiff_t>(attention.OutSize());
  return {.out = {all.begin(), at},
          .log_sums = {at, at + attention.q_heads()},
          .mass = {at + attention.q_heads(), all.end()}};
}

inline void ExpectNear(const std::vector<float>& expected, const std::vector<float>& actual,
                       const std::string& what, float bound) {
  ASSERT_EQ(expected.size(), actual.size()) << what;
  float largest = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    ASSERT_TRUE(std::isfinite(actual[i])) << what << " " << i;
    largest = std::max(largest, std::abs(expected[i] - actual[i]));
  }
  EXPECT_LT(largest, bound) << what;
}

inline void ExpectNear(const MergeOutcome& expected, const MergeOutcome& actual, float bound) {
  ExpectNear(expected.out, actual.out, "attention", bound);
  ExpectNear(expected.log_sums, actual.log_sums, "logarithms of sums", bound);
  ExpectNear(expected.mass, actual.mass, "mass", bound);
}

inline void ExpectSameBits(const MergeOutcome& one, const MergeOutcome& other) {
  EXPECT_EQ(one.out, other.out);
  EXPECT_EQ(one.log_sums, other.log_sums);
  EXPECT_EQ(one.mass, other.mass);
}

}  // namespace ebb

#endif  // EBB_STEP_DEVICE_OWN_NODES_FOR_TEST_H_
