#include "ebb/device.h"

#include "gtest/gtest.h"

namespace ebb {
namespace {

TEST(ParseDeviceTest, TheProcessorHasNoKeys) {
  EXPECT_EQ(ParseDevice("cpu")->kind, DeviceKind::kCpu);
  EXPECT_FALSE(ParseDevice("cpu:memory=1GiB").ok());
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
  const auto both = ParseDevice("rpc:here:1:attention=eager,memory=1GiB");
  ASSERT_TRUE(both.ok()) << both.status().ToString();
  EXPECT_EQ(both->name, "rpc:here:1");
  EXPECT_EQ(both->memory_bytes, uint64_t{1} << 30);
  EXPECT_EQ(both->attention, DeviceAttention::kEager);
  for (const std::string name : {"auto", "flash", "eager"}) {
    EXPECT_EQ(DeviceAttentionName(ParseDevice("cuda0:attention=" + name)->attention), name);
  }
}

TEST(ParseDeviceTest, RefusesWhatItCannotRead) {
  for (const char* text : {"", "a gpu", "cuda0:", "rpc:", "rpc:here", "rpc:here:", "rpc::50052",
                           "rpc:here:port", "cuda0:memory", "cuda0:memory=0",
                           "cuda0:attention=none", "cuda0:attention=auto,attention=flash",
                           "rpc:here:1:memory", "cpu:", "cuda0:memory=1GiB,memory=1GiB",
                           "cuda0:speed=1", "cuda0:memory=1GiB,", "cuda0:,memory=1GiB"}) {
    const auto spec = ParseDevice(text);
    EXPECT_EQ(spec.status().code(), StatusCode::kInvalidArgument) << text;
    EXPECT_NE(spec.status().message().find("write cpu, or a device"), std::string::npos) << text;
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
