#include "src/io/io_memory.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebb {
namespace {

using ::testing::HasSubstr;

TEST(IoMemoryTest, IsZeroAlignedAndWritable) {
  for (const size_t num_bytes : {size_t{1}, size_t{2} << 20, (size_t{5} << 20) + 1}) {
    const auto memory = IoMemory::Map(num_bytes);
    ASSERT_TRUE(memory.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % (2 << 20), 0u);
    EXPECT_GE(memory->size(), num_bytes);
    EXPECT_LT(memory->size(), num_bytes + (2 << 20));
    std::byte* end = memory->data() + memory->size();
    EXPECT_EQ(std::count(memory->data(), end, std::byte{0}),
              static_cast<ptrdiff_t>(memory->size()));
    std::fill(memory->data(), end, std::byte{7});
    EXPECT_EQ(end[-1], std::byte{7});
  }
}

TEST(IoMemoryTest, NoBytesNeedNoMemory) {
  const auto memory = IoMemory::Map(0);
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(memory->size(), 0u);
}

TEST(IoMemoryTest, WhatTheSystemDoesNotHaveIsRefused) {
  for (const size_t num_bytes : {SIZE_MAX, SIZE_MAX / 8}) {
    const auto memory = IoMemory::Map(num_bytes);
    ASSERT_FALSE(memory.ok());
    EXPECT_EQ(memory.status().code(), StatusCode::kOutOfMemory);
    EXPECT_THAT(memory.status().message(), HasSubstr("Cannot allocate memory"));
  }
}

TEST(IoMemoryTest, MovesHandTheMemoryOver) {
  auto first = IoMemory::Map(1);
  ASSERT_TRUE(first.ok());
  std::byte* const data = first->data();
  data[5] = std::byte{9};
  IoMemory second = *std::move(first);
  EXPECT_EQ(second.data(), data);
  IoMemory third;
  third = std::move(second);
  EXPECT_EQ(third.data()[5], std::byte{9});
}

}  // namespace
}  // namespace ebb
