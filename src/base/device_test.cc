#include "ebb/device.h"

#include "gtest/gtest.h"

namespace ebb {
namespace {

TEST(ParseDeviceTest, ReadsEveryKey) {
  const auto spec = ParseDevice(
      "sim:h2d=12.5GBps,d2h=900MBps,latency=7us,device=2TBps,host=40GBps,layer=1.5ms,memory=64MiB,"
      "copies=thread");
  ASSERT_TRUE(spec.ok()) << spec.status().ToString();
  EXPECT_EQ(spec->kind, DeviceKind::kSim);
  EXPECT_DOUBLE_EQ(spec->h2d_bytes_per_s, 12.5e9);
  EXPECT_DOUBLE_EQ(spec->d2h_bytes_per_s, 900e6);
  EXPECT_DOUBLE_EQ(spec->latency_seconds, 7e-6);
  EXPECT_DOUBLE_EQ(spec->device_bytes_per_s, 2e12);
  EXPECT_DOUBLE_EQ(spec->host_bytes_per_s, 40e9);
  EXPECT_DOUBLE_EQ(spec->layer_seconds, 1.5e-3);
  EXPECT_EQ(spec->memory_bytes, uint64_t{64} << 20);
  EXPECT_EQ(spec->copies, CopyArrival::kThread);
}

TEST(ParseDeviceTest, NamesAloneTakeTheDefaults) {
  EXPECT_EQ(ParseDevice("cpu")->kind, DeviceKind::kCpu);
  EXPECT_EQ(ParseDevice("sim")->kind, DeviceKind::kSim);
  EXPECT_DOUBLE_EQ(ParseDevice("sim")->h2d_bytes_per_s, 25e9);
  EXPECT_DOUBLE_EQ(ParseDevice("sim")->latency_seconds, 10e-6);
}

TEST(ParseDeviceTest, OtherNamesAreThoseOfBackends) {
  const auto all = ParseDevice("cuda0");
  ASSERT_TRUE(all.ok()) << all.status().ToString();
  EXPECT_EQ(all->kind, DeviceKind::kBackend);
  EXPECT_EQ(all->name, "cuda0");
  EXPECT_EQ(all->memory_bytes, 0u);
  const auto rpc = ParseDevice("rpc:10.0.0.1:50052:memory=1GiB");
  ASSERT_TRUE(rpc.ok()) << rpc.status().ToString();
  EXPECT_EQ(rpc->name, "rpc:10.0.0.1:50052");
  EXPECT_EQ(rpc->memory_bytes, uint64_t{1} << 30);
  EXPECT_EQ(ParseDevice("rpc:here:1")->name, "rpc:here:1");
  const auto part = ParseDevice("Vulkan1:memory=8GiB");
  ASSERT_TRUE(part.ok()) << part.status().ToString();
  EXPECT_EQ(part->name, "Vulkan1");
  EXPECT_EQ(part->memory_bytes, uint64_t{8} << 30);
  EXPECT_EQ(part->attention, DeviceAttention::kAuto);
  const auto both = ParseDevice("rpc:here:1:attention=ggml,memory=1GiB");
  ASSERT_TRUE(both.ok()) << both.status().ToString();
  EXPECT_EQ(both->name, "rpc:here:1");
  EXPECT_EQ(both->memory_bytes, uint64_t{1} << 30);
  EXPECT_EQ(both->attention, DeviceAttention::kGgml);
}

TEST(ParseDeviceTest, RefusesWhatItCannotRead) {
  for (const char* text : {"",
                           "a gpu",
                           "cuda0:",
                           "rpc:",
                           "rpc:here",
                           "rpc:here:",
                           "rpc::50052",
                           "rpc:here:port",
                           "cuda0:memory",
                           "cuda0:memory=0",
                           "cuda0:h2d=25GBps",
                           "cuda0:attention=none",
                           "cuda0:attention=auto,attention=ggml",
                           "rpc:here:1:memory",
                           "sim:attention=auto",
                           "cpu:",
                           "sim:",
                           "sim:h2d",
                           "sim:h2d=",
                           "sim:h2d=0GBps",
                           "sim:h2d=-1GBps",
                           "sim:h2d=25",
                           "sim:h2d=25GB",
                           "sim:h2d=nanGBps",
                           "sim:h2d=infGBps",
                           "sim:latency=10",
                           "sim:latency=-1us",
                           "sim:h2d=0.9kBps",
                           "sim:d2h=1001TBps",
                           "sim:layer=1001s",
                           "sim:latency=1us,latency=1us",
                           "sim:memory=0",
                           "sim:copies=soon",
                           "sim:speed=1",
                           "sim:h2d=25GBps,",
                           "sim:,h2d=25GBps"}) {
    const auto spec = ParseDevice(text);
    EXPECT_EQ(spec.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(spec.status().message().find("write cpu, a device"), std::string::npos) << text;
  }
}

TEST(ParseT1ModeTest, NamesAreReadBack) {
  for (const T1Mode mode : {T1Mode::kAuto, T1Mode::kCompute, T1Mode::kStream}) {
    EXPECT_EQ(*ParseT1Mode(T1ModeName(mode)), mode);
  }
  EXPECT_EQ(ParseT1Mode("copy").status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ebb
