#include "src/device/step_costs.h"

#include "gtest/gtest.h"

namespace ebb {
namespace {

constexpr DeviceRates kRates = {.h2d_bytes_per_s = 1e9,
                                .d2h_bytes_per_s = 1e9,
                                .latency_seconds = 1e-6,
                                .device_bytes_per_s = 1e12,
                                .host_bytes_per_s = 1e10,
                                .layer_seconds = 1e-5};

TEST(StepCostsTest, StreamingHidesTheShorterOfCopiesAndComputing) {
  // Copies: 1 + 100 us a layer. Computing: 10 + 1 us.
  const LayerBytes copied = {.on_device = 900'000, .t1_rows = 100'000, .t1_pages = 100'000};
  EXPECT_NEAR(StreamSeconds(kRates, copied, 10), 1010e-6, 1e-12);
  // Copies: 1 + 2 us a layer.
  const LayerBytes computed = {.on_device = 998'000, .t1_rows = 2000, .t1_pages = 2000};
  EXPECT_NEAR(StreamSeconds(kRates, computed, 10), 110e-6, 1e-12);
}

TEST(StepCostsTest, AttendingOnTheHostPaysTheWayThereAndBackInEveryLayer) {
  // 10 us, then there and back 2 us, 1 us for queries and states each, 10 us on the host.
  const LayerBytes bytes = {.on_device = 1'000'000,
                            .t1_rows = 100'000,
                            .t1_pages = 120'000,
                            .queries = 1000,
                            .states = 1000};
  EXPECT_NEAR(ComputeSeconds(kRates, bytes, 10), 240e-6, 1e-12);
  EXPECT_NEAR(ComputeSeconds(kRates, {.on_device = 1'000'000}, 10), 110e-6, 1e-12);
}

}  // namespace
}  // namespace ebb
