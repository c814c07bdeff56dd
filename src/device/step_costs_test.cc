#include "src/device/step_costs.h"

#include "gtest/gtest.h"
#include "src/device/sim_device.h"

namespace ebb {
namespace {

constexpr DeviceSpec kSpec = {.kind = DeviceKind::kSim,
                              .h2d_bytes_per_s = 12e9,
                              .d2h_bytes_per_s = 10e9,
                              .latency_seconds = 7e-6,
                              .device_bytes_per_s = 2e12,
                              .host_bytes_per_s = 50e9,
                              .layer_seconds = 30e-6,
                              .memory_bytes = 64 << 20};

TEST(MeasureRatesTest, FindsTheParametersOfASimulatedDevice) {
  auto device = SimDevice::Create(kSpec);
  ASSERT_TRUE(device.ok());
  const auto rates = MeasureRates(device->get());
  ASSERT_TRUE(rates.ok()) << rates.status().ToString();
  const auto expect_near = [](double got, double want) { EXPECT_NEAR(got, want, 1e-6 * want); };
  expect_near(rates->h2d_bytes_per_s, kSpec.h2d_bytes_per_s);
  expect_near(rates->d2h_bytes_per_s, kSpec.d2h_bytes_per_s);
  expect_near(rates->latency_seconds, kSpec.latency_seconds);
  expect_near(rates->device_bytes_per_s, kSpec.device_bytes_per_s);
  expect_near(rates->host_bytes_per_s, kSpec.host_bytes_per_s);
  expect_near(rates->layer_seconds, kSpec.layer_seconds);
  EXPECT_EQ((*device)->used_bytes(), 0u);
}

TEST(MeasureRatesTest, SaysWhyItCannot) {
  auto device = SimDevice::Create(kSpec);
  ASSERT_TRUE(device.ok());
  (*device)->SetFaults([](const DeviceRequest& request) -> DeviceFault {
    const bool fails = request.call == DeviceRequest::Call::kCopy;
    return {.kind = fails ? DeviceFault::Kind::kFails : DeviceFault::Kind::kNone};
  });
  EXPECT_EQ(MeasureRates(device->get()).status().code(), StatusCode::kIo);
}

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
