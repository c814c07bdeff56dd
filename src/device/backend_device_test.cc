#include "src/device/backend_device.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "tests/support/device/sim_backend.h"
#include "tests/support/expect_ok.h"

namespace ebb {
namespace {

constexpr size_t kExtent = kDeviceMemoryStep;

std::unique_ptr<BackendDevice> Make(size_t row_bytes, uint64_t memory = 64 * kExtent) {
  auto device = BackendDevice::Create(
      {.kind = DeviceKind::kBackend, .name = "ggml-cpu", .memory_bytes = memory}, row_bytes);
  EXPECT_TRUE(device.ok()) << device.status().ToString();
  return *std::move(device);
}

// Returns a row of finite F16 numbers, which depends on the seed.
std::vector<std::byte> Row(size_t num_bytes, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint16_t> halves(num_bytes / 2);
  for (uint16_t& half : halves) half = random() % 0x7c00 | (random() % 2) << 15;
  std::vector<std::byte> row(num_bytes);
  std::memcpy(row.data(), halves.data(), num_bytes);
  return row;
}

void Write(BackendDevice* device, std::byte* at, size_t num_bytes, uint32_t seed) {
  ExpectOk(device->WriteRows({&at, 1}, num_bytes, Row(num_bytes, seed).data()));
}

std::vector<std::byte> ReadRow(BackendDevice* device, const std::byte* at, size_t num_bytes) {
  std::vector<std::byte> row(num_bytes);
  ExpectOk(device->ReadRows({&at, 1}, num_bytes, row.data()));
  return row;
}

// BackendRows runs with several row sizes: 160 and 192 bytes do not divide an extent.
class BackendRows : public testing::TestWithParam<size_t> {};

TEST_P(BackendRows, AreWhatWasWritten) {
  const size_t bytes = GetParam();
  auto device = Make(bytes);
  std::map<std::byte*, uint32_t> written;
  std::vector<std::byte*> extents;
  for (int i = 0; i < 12; ++i) extents.push_back(*device->Allocate(MemoryKind::kDevice, kExtent));
  const size_t rows = kExtent / bytes;
  for (std::byte* extent : extents) {
    for (const size_t row : {size_t{0}, size_t{1}, rows / 2, rows - 1}) {
      const auto seed = static_cast<uint32_t>(written.size());
      written[extent + row * bytes] = seed;
      Write(device.get(), extent + row * bytes, bytes, seed);
    }
  }
  // Write a page of several rows.
  Write(device.get(), extents[3] + 10 * bytes, 5 * bytes, 99);
  EXPECT_EQ(ReadRow(device.get(), extents[3] + 10 * bytes, 5 * bytes), Row(5 * bytes, 99));
  for (const auto& [at, seed] : written)
    EXPECT_EQ(ReadRow(device.get(), at, bytes), Row(bytes, seed));
  // Free all extents but three: the buffer shrinks, and the remaining rows move within it.
  const uint64_t generation = device->generation();
  const size_t before = device->buffer_bytes();
  for (size_t i = 0; i < extents.size(); ++i) {
    if (i == 2 || i == 7 || i == 11) continue;
    ExpectOk(device->Free(MemoryKind::kDevice, extents[i], kExtent));
    std::erase_if(written, [&](const auto& entry) {
      return entry.first >= extents[i] && entry.first < extents[i] + kExtent;
    });
  }
  EXPECT_LT(device->buffer_bytes(), before);
  EXPECT_GT(device->generation(), generation);
  EXPECT_EQ(written.size(), 12u);
  for (const auto& [at, seed] : written)
    EXPECT_EQ(ReadRow(device.get(), at, bytes), Row(bytes, seed));
}

TEST_P(BackendRows, AreCopiedAsIfOneAfterTheOther) {
  const size_t bytes = GetParam();
  auto device = Make(bytes);
  std::byte* const at = *device->Allocate(MemoryKind::kDevice, 2 * kExtent);
  std::map<size_t, uint32_t> expected;
  for (uint32_t row = 0; row < 40; ++row) {
    Write(device.get(), at + row * bytes, bytes, row);
    expected[row] = row;
  }
  std::mt19937 random(3);
  std::vector<CopyPart> parts;
  for (int i = 0; i < 200; ++i) {
    const size_t from = random() % 40, to = random() % 40;
    parts.push_back({.from = at + from * bytes, .to = at + to * bytes, .num_bytes = bytes});
    expected[to] = expected[from];
  }
  ExpectOk(device->CopyRows(parts));
  for (const auto& [row, seed] : expected) {
    EXPECT_EQ(ReadRow(device.get(), at + row * bytes, bytes), Row(bytes, seed)) << row;
  }
}

// Records must keep bytes that are not finite as F16, and a write to a record must leave other
// records in the same row of the buffer unchanged.
TEST_P(BackendRows, RecordsOfAnySizeKeepTheirBits) {
  const size_t bytes = GetParam();
  auto device = Make(bytes);
  std::mt19937 random(5);
  for (const size_t record_bytes : {92, 132, 180}) {
    std::byte* const extent = *device->Allocate(MemoryKind::kRecords, kExtent);
    constexpr size_t kRecords = 300;
    std::vector<std::byte*> all;
    std::vector<std::byte> expected(kRecords * record_bytes);
    for (size_t i = 0; i < kRecords; ++i) all.push_back(extent + i * record_bytes);
    ExpectOk(device->WriteRows(all, record_bytes, expected.data()));
    // Read some of the records in another order.
    std::vector<size_t> numbers;
    for (size_t i = 0; i < kRecords; ++i) numbers.push_back(i);
    std::ranges::shuffle(numbers, random);
    numbers.resize(100);
    std::vector<std::byte*> some;
    std::vector<std::byte> written;
    for (const size_t number : numbers) {
      some.push_back(all[number]);
      for (size_t i = 0; i < record_bytes; ++i) {
        written.push_back(static_cast<std::byte>(random()));
        expected[number * record_bytes + i] = written.back();
      }
    }
    ExpectOk(device->WriteRows(some, record_bytes, written.data()));
    std::vector<std::byte> read(expected.size());
    ExpectOk(device->ReadRows({all.begin(), all.end()}, record_bytes, read.data()));
    EXPECT_EQ(read, expected);
    read.resize(written.size());
    ExpectOk(device->ReadRows({some.begin(), some.end()}, record_bytes, read.data()));
    EXPECT_EQ(read, written);
    // Copy whole rows to another place.
    const size_t page_bytes = (expected.size() + bytes - 1) / bytes * bytes;
    std::byte* const other = *device->Allocate(MemoryKind::kRecords, kExtent);
    const CopyPart copy = {.from = extent, .to = other + page_bytes, .num_bytes = page_bytes};
    ExpectOk(device->CopyRows({&copy, 1}));
    read = ReadRow(device.get(), other + page_bytes, page_bytes);
    EXPECT_TRUE(std::equal(expected.begin(), expected.end(), read.begin()));
    // Memory that held records must be finite once it is used for other rows.
    ExpectOk(device->Free(MemoryKind::kRecords, other, kExtent));
    EXPECT_EQ(*device->Allocate(MemoryKind::kDevice, kExtent), other);
    EXPECT_EQ(ReadRow(device.get(), other + page_bytes, page_bytes),
              std::vector<std::byte>(page_bytes));
  }
}

INSTANTIATE_TEST_SUITE_P(Widths, BackendRows, testing::Values(64, 128, 160, 192, 256));

// The device lacks memory for the old and the new buffer at once, so that the rows must pass
// through the host.
TEST_P(BackendRows, StayWhereABufferGrowsInTheOnesPlace) {
  const size_t bytes = GetParam();
  auto device = Make(bytes, 13 * kExtent);
  std::vector<std::byte*> extents;
  const auto expect_all = [&] {
    for (size_t i = 0; i < extents.size(); ++i) {
      const auto seed = static_cast<uint32_t>(i);
      EXPECT_EQ(ReadRow(device.get(), extents[i] + 3 * bytes, bytes), Row(bytes, seed)) << i;
    }
  };
  for (uint32_t i = 0; i < 13; ++i) {
    auto extent = device->Allocate(MemoryKind::kDevice, kExtent);
    ASSERT_TRUE(extent.ok()) << extent.status().ToString();
    extents.push_back(*extent);
    Write(device.get(), *extent + 3 * bytes, bytes, i);
  }
  expect_all();
  EXPECT_EQ(device->Allocate(MemoryKind::kDevice, kExtent).status().code(),
            StatusCode::kOutOfMemory);
  const size_t full = device->buffer_bytes();
  EXPECT_LE(full, 13 * device->RowsOfExtent() * bytes + 2 * kExtent);
  while (extents.size() > 4) {
    ExpectOk(device->Free(MemoryKind::kDevice, extents.back(), kExtent));
    extents.pop_back();
  }
  EXPECT_LT(device->buffer_bytes(), full);
  expect_all();
}

TEST(BackendDeviceTest, RefusesMoreThanItHas) {
  auto device = Make(128, 4 * kExtent);
  std::vector<std::byte*> extents;
  for (int i = 0; i < 4; ++i) {
    auto extent = device->Allocate(MemoryKind::kDevice, kExtent);
    ASSERT_TRUE(extent.ok()) << extent.status().ToString();
    extents.push_back(*extent);
    Write(device.get(), *extent, 128, i);
  }
  const auto more = device->Allocate(MemoryKind::kDevice, kExtent);
  EXPECT_EQ(more.status().code(), StatusCode::kOutOfMemory);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(ReadRow(device.get(), extents[i], 128), Row(128, i));
  ExpectOk(device->Free(MemoryKind::kDevice, extents[1], kExtent));
  EXPECT_TRUE(device->Allocate(MemoryKind::kDevice, kExtent).ok());
}

TEST(BackendDeviceTest, UnknownNamesTellWhichThereAre) {
  const auto device = BackendDevice::Create(
      {.kind = DeviceKind::kBackend, .name = "warp9", .memory_bytes = 0}, 128);
  EXPECT_EQ(device.status().code(), StatusCode::kNotFound);
  EXPECT_NE(device.status().message().find("ggml-cpu"), std::string::npos);
}

TEST(BackendDeviceTest, ItsMemoryIsClosedToTheHost) {
  auto device = Make(128);
  std::byte* const at = *device->Allocate(MemoryKind::kDevice, kExtent);
  EXPECT_DEATH(*reinterpret_cast<volatile char*>(at) = 1, "");
}

TEST(BackendDeviceTest, IsLostOnceItsBackendGivesUp) {
  auto device = Make(128);
  std::byte* const at = *device->Allocate(MemoryKind::kDevice, kExtent);
  Write(device.get(), at, 128, 1);
  const Status lost = device->Call([]() -> Status {
    ggml_log_callback log = nullptr;
    void* data = nullptr;
    ggml_log_get(&log, &data);
    log(GGML_LOG_LEVEL_ERROR, "driver: no power\n  at pin 4\n", data);
    GGML_ABORT("out of cards");
  });
  EXPECT_EQ(lost.code(), StatusCode::kInternal);
  EXPECT_NE(lost.message().find("device ggml-cpu was lost"), std::string::npos);
  EXPECT_NE(lost.message().find("out of cards"), std::string::npos);
  EXPECT_NE(lost.message().find("driver: no power at pin 4"), std::string::npos);
  std::vector<std::byte> row(128);
  EXPECT_EQ(device->ReadRows(std::vector<const std::byte*>{at}, 128, row.data()).message(),
            lost.message());
  // Another device must still work.
  auto other = Make(128);
  Write(other.get(), *other->Allocate(MemoryKind::kDevice, kExtent), 128, 1);
}

TEST(BackendDeviceTest, PinnedMemoryIsTheHosts) {
  auto device = Make(128);
  std::byte* const at = *device->Allocate(MemoryKind::kPinned, kExtent);
  std::memset(at, 7, kExtent);
  EXPECT_EQ(at[kExtent - 1], std::byte{7});
  ExpectOk(device->Free(MemoryKind::kPinned, at, kExtent));
}

// Transfers of any number of rows must use the same few MiB on the device and on the host.
TEST(BackendDeviceTest, RowsPassThroughMemoryThatStays) {
  constexpr size_t kRowBytes = 256;
  auto device = Make(kRowBytes);
  EXPECT_EQ(device->transfer_bytes(), 0u);
  std::vector<std::byte*> rows;
  std::vector<std::byte> written;
  for (int i = 0; i < 16; ++i) {
    std::byte* const extent = *device->Allocate(MemoryKind::kDevice, kExtent);
    for (size_t at = 0; at < kExtent; at += kRowBytes) {
      rows.push_back(extent + at);
      const std::vector<std::byte> row = Row(kRowBytes, static_cast<uint32_t>(rows.size()));
      written.insert(written.end(), row.begin(), row.end());
    }
  }
  ExpectOk(device->WriteRows(rows, kRowBytes, written.data()));
  const size_t bytes = device->transfer_bytes();
  EXPECT_GT(bytes, 0u);
  EXPECT_LE(bytes, RowTransfers::kMostRows * (kRowBytes * 3 + sizeof(int32_t)) + kExtent);
  std::vector<std::byte> read(written.size());
  ExpectOk(device->ReadRows(rows, kRowBytes, read.data()));
  EXPECT_EQ(read, written);
  EXPECT_EQ(device->transfer_bytes(), bytes);
  // The same must hold if rows pass through Staging(), which stays allocated on the host.
  std::byte* const staging = device->Staging(kExtent);
  ASSERT_NE(staging, nullptr);
  EXPECT_EQ(device->Staging(1), staging);
  rows.resize(kExtent / kRowBytes);
  ExpectOk(device->ReadRows(rows, kRowBytes, staging));
  EXPECT_EQ(std::memcmp(staging, written.data(), kExtent), 0);
  EXPECT_EQ(device->Staging(size_t{1} << 30), nullptr);
}

// Steps read the spare row and mask it, so that it must stay finite when a graph's padding writes
// to it.
TEST(BackendDeviceTest, WritesLeaveTheSpareRowAlone) {
  constexpr size_t kRowBytes = 64;
  auto device = Make(kRowBytes);
  // Fill rows with NaNs of F16, so that a later write's graph finds them in its memory.
  std::vector<std::byte*> rows;
  for (int i = 0; i < 4; ++i) {
    std::byte* const extent = *device->Allocate(MemoryKind::kDevice, kExtent);
    for (size_t at = 0; at < kExtent; at += kRowBytes) rows.push_back(extent + at);
  }
  std::vector<std::byte> read(kRowBytes * 8192);
  ExpectOk(device->ReadRows(std::span(rows).subspan(31'744, 8192), kRowBytes, read.data()));
  Write(device.get(), rows[0], kRowBytes, 1);
  const size_t at = size_t(device->spare_row()) * kRowBytes;
  std::vector<std::byte> spare(kRowBytes);
  for (const size_t row : {at, at + kRowsPerPage * kRowBytes}) {
    ggml_backend_tensor_get(device->rows(), spare.data(), row, kRowBytes);
    EXPECT_EQ(spare, std::vector<std::byte>(kRowBytes));
  }
}

// Rows must be transferred one by one if the device never has memory for a graph.
TEST(BackendDeviceTest, RowsPassWithoutMemoryForAGraph) {
  constexpr size_t kRowBytes = 128;
  const auto made = BackendDevice::Create(
      {.kind = DeviceKind::kBackend, .name = "ggml-sim", .memory_bytes = 8 * kExtent}, kRowBytes);
  ASSERT_TRUE(made.ok()) << made.status().ToString();
  BackendDevice& device = **made;
  std::byte* const extent = *device.Allocate(MemoryKind::kDevice, kExtent);
  SetSimBackendFaults([](SimBackendWork work) { return work == SimBackendWork::kAllocate; });
  for (uint32_t row = 0; row < 100; ++row) Write(&device, extent + row * kRowBytes, kRowBytes, row);
  std::vector<CopyPart> parts;
  for (size_t row = 0; row < 100; ++row) {
    std::byte* const from = extent + row * kRowBytes;
    parts.push_back({.from = from, .to = from + 100 * kRowBytes, .num_bytes = kRowBytes});
  }
  ExpectOk(device.CopyRows(parts));
  for (uint32_t row = 0; row < 200; ++row) {
    EXPECT_EQ(ReadRow(&device, extent + row * kRowBytes, kRowBytes), Row(kRowBytes, row % 100));
  }
  EXPECT_EQ(device.transfer_bytes(), 0u);
  SetSimBackendFaults({});
}

TEST(BackendDeviceTest, GathersPagesWhereItsBackendDoes) {
  for (const size_t row_bytes : {64, 128, 256}) EXPECT_TRUE(Make(row_bytes)->GathersPages());
}

}  // namespace
}  // namespace ebb
