#include "src/device/sim_device.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <fstream>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include "gtest/gtest.h"
#include "src/device/sim_clock.h"

namespace ebb {
namespace {

constexpr size_t kStep = kDeviceMemoryStep;

void ExpectOk(const Status& status) { EXPECT_TRUE(status.ok()) << status.ToString(); }

DeviceSpec Spec(CopyArrival copies = CopyArrival::kLate) {
  return {.kind = DeviceKind::kSim, .memory_bytes = 8 * kStep, .copies = copies};
}

std::unique_ptr<SimDevice> Make(const DeviceSpec& spec = Spec()) {
  auto device = SimDevice::Create(spec);
  EXPECT_TRUE(device.ok()) << device.status().ToString();
  return *std::move(device);
}

// Memory of a device, given back at the end.
class Block {
 public:
  explicit Block(Device* device, MemoryKind kind = MemoryKind::kDevice, size_t num_bytes = kStep)
      : device_(device), kind_(kind), num_bytes_(num_bytes) {
    auto memory = device->Allocate(kind, num_bytes);
    EXPECT_TRUE(memory.ok()) << memory.status().ToString();
    data_ = *memory;
  }
  ~Block() { ExpectOk(device_->Free(kind_, data_, num_bytes_)); }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  [[nodiscard]] std::byte* data() const { return data_; }

 private:
  Device* const device_;
  const MemoryKind kind_;
  const size_t num_bytes_;
  std::byte* data_ = nullptr;
};

DeviceEvent CopyBytes(Device* device, DeviceQueue queue, const std::byte* from, std::byte* to,
                      size_t num_bytes) {
  const CopyPart part = {.from = from, .to = to, .num_bytes = num_bytes};
  return device->Copy(queue, {.what = "copy", .num_bytes = num_bytes}, {&part, 1});
}

TEST(SimMemoryTest, AllocationsAreAlignedApartAndCapped) {
  auto device = Make();
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 8; ++i) {
    const auto block = device->Allocate(MemoryKind::kDevice, kStep);
    ASSERT_TRUE(block.ok()) << i;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(*block) % kStep, 0u);
    EXPECT_EQ(std::ranges::count(blocks, *block), 0);
    blocks.push_back(*block);
  }
  EXPECT_EQ(device->used_bytes(), 8 * kStep);
  EXPECT_EQ(device->Allocate(MemoryKind::kDevice, kStep).status().code(),
            StatusCode::kResourceExhausted);
  for (std::byte* block : blocks) ExpectOk(device->Free(MemoryKind::kDevice, block, kStep));
  EXPECT_EQ(device->used_bytes(), 0u);
}

TEST(SimMemoryTest, FreedNeighboursJoinWhateverTheirOrder) {
  std::mt19937 random(1);
  auto device = Make();
  for (int round = 0; round < 50; ++round) {
    std::vector<std::byte*> blocks;
    for (int i = 0; i < 8; ++i) blocks.push_back(*device->Allocate(MemoryKind::kDevice, kStep));
    std::ranges::shuffle(blocks, random);
    for (std::byte* block : blocks) ExpectOk(device->Free(MemoryKind::kDevice, block, kStep));
    const auto all = device->Allocate(MemoryKind::kDevice, 8 * kStep);
    ASSERT_TRUE(all.ok()) << all.status().ToString();
    ExpectOk(device->Free(MemoryKind::kDevice, *all, 8 * kStep));
  }
}

TEST(SimMemoryTest, WhatIsWrittenInACallIsReadInALaterOne) {
  auto device = Make();
  const Block block(device.get());
  {
    const DeviceCall call(device.get());
    std::memset(block.data(), 7, kStep);
  }
  const DeviceCall call(device.get());
  const DeviceCall nested(device.get());
  EXPECT_EQ(block.data()[kStep - 1], std::byte{7});
}

using SimMemoryDeathTest = testing::Test;

TEST(SimMemoryDeathTest, AStrayReadDies) {
  auto device = Make();
  const Block block(device.get());
  EXPECT_DEATH({ *static_cast<volatile std::byte*>(block.data()); }, "");
}

TEST(SimMemoryDeathTest, AStrayWriteAfterACallDies) {
  auto device = Make();
  const Block block(device.get());
  { const DeviceCall call(device.get()); }
  EXPECT_DEATH({ *static_cast<volatile std::byte*>(block.data()) = std::byte{1}; }, "");
}

class SimCopiesTest : public testing::TestWithParam<CopyArrival> {};

TEST_P(SimCopiesTest, BytesAreThereAfterTheWaitOfTheHostOrOfAComputingQueue) {
  auto device = Make(Spec(GetParam()));
  const Block on_device(device.get());
  const Block pinned(device.get(), MemoryKind::kPinned);
  const Block back(device.get(), MemoryKind::kPinned);
  std::mt19937 random(2);
  for (int round = 0; round < 30; ++round) {
    for (size_t i = 0; i < 4096; ++i) pinned.data()[i] = static_cast<std::byte>(random());
    const auto up =
        CopyBytes(device.get(), DeviceQueue::kToDevice, pinned.data(), on_device.data(), 4096);
    ExpectOk(device->QueueWait(DeviceQueue::kCompute, up));
    {
      const DeviceCall call(device.get());
      EXPECT_EQ(std::memcmp(on_device.data(), pinned.data(), 4096), 0);
    }
    const auto down =
        CopyBytes(device.get(), DeviceQueue::kToHost, on_device.data(), back.data(), 4096);
    ExpectOk(device->Wait(down));
    EXPECT_EQ(std::memcmp(back.data(), pinned.data(), 4096), 0);
  }
}

TEST_P(SimCopiesTest, ADirectionThatWaitsForTheOtherReadsWhatThatBrought) {
  auto device = Make(Spec(GetParam()));
  const Block on_device(device.get());
  const Block pinned(device.get(), MemoryKind::kPinned);
  const Block back(device.get(), MemoryKind::kPinned);
  for (int round = 1; round < 30; ++round) {
    std::memset(pinned.data(), round, 4096);
    const auto up =
        CopyBytes(device.get(), DeviceQueue::kToDevice, pinned.data(), on_device.data(), 4096);
    ExpectOk(device->QueueWait(DeviceQueue::kToHost, up));
    const auto down =
        CopyBytes(device.get(), DeviceQueue::kToHost, on_device.data(), back.data(), 4096);
    ExpectOk(device->Wait(down));
    EXPECT_EQ(back.data()[4095], static_cast<std::byte>(round));
  }
}

TEST_P(SimCopiesTest, AFailedCopyIsToldByItsOwnWaitsAlone) {
  auto device = Make(Spec(GetParam()));
  const Block on_device(device.get());
  const Block pinned(device.get(), MemoryKind::kPinned);
  int copies = 0;
  device->SetFaults([&](const DeviceRequest& request) -> DeviceFault {
    const bool fails = request.call == DeviceRequest::Call::kCopy && ++copies == 2;
    return {.kind = fails ? DeviceFault::Kind::kFails : DeviceFault::Kind::kNone};
  });
  std::vector<DeviceEvent> events;
  for (int i = 0; i < 3; ++i) {
    events.push_back(
        CopyBytes(device.get(), DeviceQueue::kToDevice, pinned.data(), on_device.data(), 64));
  }
  ExpectOk(device->Wait(events[2]));
  ExpectOk(device->Wait(events[0]));
  const Status failed = device->Wait(events[1]);
  EXPECT_EQ(failed.code(), StatusCode::kIo);
  EXPECT_NE(failed.message().find("64 bytes to its memory"), std::string::npos);
}

TEST_P(SimCopiesTest, CopiesThatNobodyWaitedForHarmNoLaterUse) {
  auto device = Make(Spec(GetParam()));
  const Block on_device(device.get());
  const Block pinned(device.get(), MemoryKind::kPinned);
  DeviceEvent last;
  for (int i = 0; i < 10; ++i) {
    std::memset(pinned.data(), 0, 64);
    last = CopyBytes(device.get(), DeviceQueue::kToDevice, pinned.data(), on_device.data(), 64);
    ExpectOk(device->Wait(last));
  }
  ExpectOk(device->Wait(last));
}

INSTANTIATE_TEST_SUITE_P(Arrivals, SimCopiesTest,
                         testing::Values(CopyArrival::kLate, CopyArrival::kAtOnce,
                                         CopyArrival::kThread));

TEST(SimDeviceTest, AMissingWaitShows) {
  auto device = Make();
  const Block on_device(device.get());
  const Block pinned(device.get(), MemoryKind::kPinned);
  std::memset(pinned.data(), 9, 64);
  const auto event =
      CopyBytes(device.get(), DeviceQueue::kToDevice, pinned.data(), on_device.data(), 64);
  {
    const DeviceCall call(device.get());
    EXPECT_EQ(on_device.data()[0], std::byte{0});
  }
  ExpectOk(device->Wait(event));
  const DeviceCall call(device.get());
  EXPECT_EQ(on_device.data()[0], std::byte{9});
}

TEST(SimDeviceTest, AllocationsFailOnRequest) {
  auto device = Make();
  device->SetFaults([](const DeviceRequest& request) -> DeviceFault {
    const bool fails =
        request.call == DeviceRequest::Call::kAllocate && request.memory == MemoryKind::kPinned;
    return {.kind = fails ? DeviceFault::Kind::kFails : DeviceFault::Kind::kNone};
  });
  EXPECT_EQ(device->Allocate(MemoryKind::kPinned, kStep).status().code(),
            StatusCode::kResourceExhausted);
  const Block others(device.get());
}

TEST(SimDeviceTest, MemoryThatTheSystemCannotAddressIsRefused) {
  DeviceSpec spec = Spec();
  for (const uint64_t bytes : {uint64_t{1} << 62, ~uint64_t{0}}) {
    spec.memory_bytes = bytes;
    EXPECT_EQ(SimDevice::Create(spec).status().code(), StatusCode::kResourceExhausted);
  }
}

// What the process may hold of memory that can be written, less what it holds.
class DataLimit {
 public:
  explicit DataLimit(rlim_t num_bytes) {
    getrlimit(RLIMIT_DATA, &before_);
    std::ifstream status("/proc/self/status");
    rlim_t held_kib = 0;
    for (std::string word; status >> word;) {
      if (word == "VmData:") status >> held_kib;
    }
    const rlimit limit = {.rlim_cur = held_kib * 1024 + num_bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_DATA, &limit);
  }
  ~DataLimit() { setrlimit(RLIMIT_DATA, &before_); }
  DataLimit(const DataLimit&) = delete;
  DataLimit& operator=(const DataLimit&) = delete;

 private:
  rlimit before_ = {};
};

TEST(SimDeviceTest, MemoryThatALimitForbidsIsRefusedAndNotMetInACall) {
  DeviceSpec spec = Spec();
  spec.memory_bytes = size_t{1} << 30;
  const DataLimit limit(size_t{256} << 20);
  const auto device = SimDevice::Create(spec);
  ASSERT_FALSE(device.ok());
  EXPECT_EQ(device.status().code(), StatusCode::kResourceExhausted);
  EXPECT_NE(device.status().message().find("the system refused 1073741824 bytes"),
            std::string::npos)
      << device.status().message();
}

TEST(SimClockTest, WorkBeginsWhenItsQueueIsFreeAndItsEventsHappened) {
  auto device = Make({.kind = DeviceKind::kSim,
                      .h2d_bytes_per_s = 1e6,
                      .latency_seconds = 1e-3,
                      .device_bytes_per_s = 1e7,
                      .layer_seconds = 2e-3,
                      .memory_bytes = 8 * kStep});
  device->KeepTimeline();
  const Block on_device(device.get());
  const Block pinned(device.get(), MemoryKind::kPinned);
  // 1 ms of latency and 1 ms of bytes each, one after another.
  for (int i = 0; i < 2; ++i) {
    CopyBytes(device.get(), DeviceQueue::kToDevice, pinned.data(), on_device.data(), 1000);
  }
  device->Launch(DeviceQueue::kCompute, {.what = "dense", .num_layers = 1});
  ExpectOk(device->QueueWait(DeviceQueue::kCompute, device->Record(DeviceQueue::kToDevice)));
  const auto attended =
      device->Launch(DeviceQueue::kCompute, {.what = "attend", .layer = 3, .num_bytes = 10'000});
  EXPECT_DOUBLE_EQ(attended.seconds, 5e-3);
  EXPECT_DOUBLE_EQ(device->Seconds(), 0);
  ExpectOk(device->Wait(attended));
  EXPECT_DOUBLE_EQ(device->Seconds(), 5e-3);
  // What the host asks for now begins now, though its queue was free before.
  const auto later =
      CopyBytes(device.get(), DeviceQueue::kToDevice, pinned.data(), on_device.data(), 1000);
  EXPECT_DOUBLE_EQ(later.seconds, 7e-3);
  ExpectOk(device->Wait(later));

  const auto& timeline = device->timeline();
  ASSERT_EQ(timeline.size(), 5u);
  EXPECT_EQ(timeline[3].what, "attend");
  EXPECT_EQ(timeline[3].layer, 3);
  EXPECT_DOUBLE_EQ(timeline[3].begin, 4e-3);
  const auto trace = nlohmann::json::parse(TraceJson(timeline));
  ASSERT_EQ(trace["traceEvents"].size(), 4u + 5u);
  EXPECT_EQ(trace["traceEvents"][7]["name"], "attend");
  EXPECT_NEAR(trace["traceEvents"][7]["ts"].get<double>(), 4000, 1e-6);
  EXPECT_NEAR(trace["traceEvents"][7]["dur"].get<double>(), 1000, 1e-6);
}

TEST(SimClockTest, ASlowCopyDelaysWhatWaitsForIt) {
  auto device = Make();
  const Block on_device(device.get());
  const Block pinned(device.get(), MemoryKind::kPinned);
  device->SetFaults([](const DeviceRequest&) -> DeviceFault { return {.delay_seconds = 0.5}; });
  const auto copied =
      CopyBytes(device.get(), DeviceQueue::kToDevice, pinned.data(), on_device.data(), 64);
  ExpectOk(device->QueueWait(DeviceQueue::kCompute, copied));
  EXPECT_GT(device->Launch(DeviceQueue::kCompute, {.what = "attend"}).seconds, 0.5);
}

TEST(CpuDeviceTest, IsOneMemoryThatACallNeedNotOpen) {
  Device& cpu = CpuDevice();
  EXPECT_TRUE(cpu.one_memory());
  const Block block(&cpu, MemoryKind::kDevice, 3 * kStep);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(block.data()) % kStep, 0u);
  std::memset(block.data(), 1, 3 * kStep);
  const Block other(&cpu, MemoryKind::kPinned);
  ExpectOk(cpu.Wait(CopyBytes(&cpu, DeviceQueue::kToHost, block.data(), other.data(), 64)));
  EXPECT_EQ(other.data()[63], std::byte{1});
}

}  // namespace
}  // namespace ebb
