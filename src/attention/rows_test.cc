#include "src/attention/rows.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/attention/expected_for_test.h"

namespace ebb {
namespace {

constexpr RowType kRowTypes[] = {RowType::kF16, RowType::kBf16, RowType::kF32};

// Returns numbers that are hard to round: ties, the ends of ranges, NaN and infinity.
std::vector<float> AwkwardNumbers() {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  std::vector<float> numbers = {
      0.0f, 1.0f, kInf, kNaN, std::bit_cast<float>(0x7f800001u),  // a NaN whose top bits are zero
      // Ties of f16: to even below and above, and slightly off the tie.
      1.0f + 0x1p-11f, 1.0f + 0x3p-11f, std::nextafter(1.0f + 0x1p-11f, 2.0f),
      std::nextafter(1.0f + 0x3p-11f, 1.0f), 2048.5f, 2049.0f, 2051.0f,
      // Ties of bf16.
      1.0f + 0x1p-8f, 1.0f + 0x3p-8f, std::nextafter(1.0f + 0x1p-8f, 2.0f),
      // Overflow of f16 begins at 65520, of bf16 half a step above its largest number.
      65504.0f, std::nextafter(65520.0f, 0.0f), 65520.0f, 1e6f, 0x1.fep127f, 0x1.fefffep127f,
      0x1.ffp127f, std::numeric_limits<float>::max(),
      // Subnormals of f16, their smallest, half of it (a tie with 0), and those of float.
      0x1p-14f, 0x1.ffcp-15f, 0x1.ffep-15f, 0x1.ffdp-15f, 0x1p-24f, 0x1.8p-24f, 0x1p-25f,
      0x1.000002p-25f, 0x1p-26f, 0x1p-126f, 0x1p-127f, 0x1p-133f, 0x1p-134f, 0x1p-149f};
  for (size_t i = 0, n = numbers.size(); i < n; ++i) numbers.push_back(-numbers[i]);
  std::mt19937 random(7);
  while (numbers.size() % 4096 != 0) {
    // Add arbitrary bits, and numbers of ordinary size.
    const auto bits = static_cast<uint32_t>(random());
    numbers.push_back(std::bit_cast<float>(bits));
    if (numbers.size() % 4096 == 0) break;
    numbers.push_back(static_cast<float>(static_cast<int32_t>(bits)) * 0x1p-29f);
  }
  return numbers;
}

uint32_t Bits(const std::byte* row, int i, size_t size) {
  uint32_t bits = 0;
  std::memcpy(&bits, row + i * size, size);
  return bits;
}

class RowsTest : public ::testing::TestWithParam<std::string> {};

TEST_P(RowsTest, StoringRoundsAsTheReferenceDoes) {
  const AttentionKernel& kernel = KernelByName(GetParam());
  const std::vector<float> numbers = AwkwardNumbers();
  for (const RowType type : kRowTypes) {
    const size_t size = RowTypeBytes(type);
    std::vector<std::byte> got(numbers.size() * size + 1);
    std::vector<std::byte> want(got.size());
    const auto num_numbers = static_cast<int>(numbers.size());
    kernel.store_row(type, numbers.data(), got.data() + 1, num_numbers);
    ReferenceAttention().store_row(type, numbers.data(), want.data() + 1, num_numbers);
    std::vector<float> back(numbers.size());
    ReferenceAttention().load_row(type, got.data() + 1, back.data(), num_numbers);
    for (int i = 0; i < num_numbers; ++i) {
      if (std::isnan(numbers[i])) {
        EXPECT_TRUE(std::isnan(back[i])) << RowTypeName(type) << " loses a NaN";
        continue;
      }
      ASSERT_EQ(Bits(got.data() + 1, i, size), Bits(want.data() + 1, i, size))
          << RowTypeName(type) << " of " << numbers[i];
    }
  }
}

TEST_P(RowsTest, LoadingAgreesForEveryBitPattern) {
  const AttentionKernel& kernel = KernelByName(GetParam());
  std::vector<uint16_t> bits(1 << 16);
  for (size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<uint16_t>(i);
  const auto* rows = reinterpret_cast<const std::byte*>(bits.data());
  std::vector<float> got(bits.size()), want(bits.size());
  for (const RowType type : {RowType::kF16, RowType::kBf16}) {
    kernel.load_row(type, rows, got.data(), static_cast<int>(bits.size()));
    ReferenceAttention().load_row(type, rows, want.data(), static_cast<int>(bits.size()));
    for (size_t i = 0; i < bits.size(); ++i) {
      if (std::isnan(want[i])) {
        EXPECT_TRUE(std::isnan(got[i])) << RowTypeName(type) << " bits " << i;
      } else {
        ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(want[i]))
            << RowTypeName(type) << " bits " << i;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, RowsTest, ::testing::ValuesIn(KernelNames()),
                         [](const auto& info) { return info.param; });

TEST(ReferenceRowsTest, RoundsToNearestEvenAndOverflowsToInfinity) {
  struct Case {
    RowType type;
    float value;
    uint16_t bits;
  };
  const Case cases[] = {
      {RowType::kF16, 1.0f, 0x3c00},
      {RowType::kF16, -2.0f, 0xc000},
      {RowType::kF16, 1.0f + 0x1p-11f, 0x3c00},
      {RowType::kF16, 1.0f + 0x3p-11f, 0x3c02},
      {RowType::kF16, 65504.0f, 0x7bff},
      {RowType::kF16, 65520.0f, 0x7c00},
      {RowType::kF16, -1e30f, 0xfc00},
      {RowType::kF16, 0x1p-14f, 0x0400},
      {RowType::kF16, 0x1.ffep-15f, 0x0400},
      {RowType::kF16, 0x1p-24f, 0x0001},
      {RowType::kF16, 0x1.8p-24f, 0x0002},
      {RowType::kF16, 0x1p-25f, 0x0000},
      {RowType::kF16, -0.0f, 0x8000},
      {RowType::kBf16, 1.0f, 0x3f80},
      {RowType::kBf16, 1.0f + 0x1p-8f, 0x3f80},
      {RowType::kBf16, 1.0f + 0x3p-8f, 0x3f82},
      {RowType::kBf16, std::numeric_limits<float>::max(), 0x7f80},
      {RowType::kBf16, 0x1p-133f, 0x0001},
      {RowType::kBf16, 0x1p-134f, 0x0000},
  };
  for (const Case& c : cases) {
    std::byte stored[2];
    ReferenceAttention().store_row(c.type, &c.value, stored, 1);
    EXPECT_EQ(Bits(stored, 0, 2), c.bits) << RowTypeName(c.type) << " of " << c.value;
  }
}

}  // namespace
}  // namespace ebb
