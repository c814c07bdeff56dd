#include "src/device/step_costs.h"

#include "gtest/gtest.h"

namespace ebb {
namespace {

constexpr DeviceRates kRates = {
    .copy_bytes_per_s = 1e9, .latency_seconds = 1e-6, .host_bytes_per_s = 1e10};

TEST(StepCostsTest, StreamingCopiesWholePages) {
  EXPECT_NEAR(StreamSeconds(kRates, {.rows = 90'000, .pages = 100'000}), 101e-6, 1e-12);
  EXPECT_EQ(StreamSeconds(kRates, {}), 0);
}

TEST(StepCostsTest, AttendingOnTheHostPaysTheWayThereAndBack) {
  // The host's share takes 2 us of latency both ways, 2 us of copying queries and states, and 10 us
  // of attention.
  const T1Bytes bytes = {.rows = 100'000, .pages = 120'000, .queries_and_states = 2000};
  EXPECT_NEAR(ComputeSeconds(kRates, bytes), 14e-6, 1e-12);
  EXPECT_EQ(ComputeSeconds(kRates, {}), 0);
}

}  // namespace
}  // namespace ebb
