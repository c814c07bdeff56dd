#include "src/attention/ggml_records.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "src/attention/compressed.h"
#include "src/attention/rows_for_test.h"

namespace ebb::ggml_records_test {
namespace {

constexpr CompressedType kTypes[] = {CompressedType::kInt8, CompressedType::kInt4,
                                     CompressedType::kInt3, CompressedType::kInt8Naive};

CompressedFormat FormatOf(CompressedType type, int head_dim, bool has_values = true) {
  return {.type = type, .head_dim = head_dim, .has_values = has_values, .in_ggml_blocks = true};
}

// Returns by how many steps the largest magnitude of a block is divided.
float StepsOf(CompressedType type) {
  return IsInt8(type) ? 127 : type == CompressedType::kInt4 ? 16 : 8;
}

// Checks that rounding errors, before rotating back, are at most a step, and returns the largest.
// They may exceed half a step, because the largest magnitude has no code with the other sign.
float ExpectWithinAStep(CompressedType type, std::vector<float> x, std::vector<float> found) {
  const int dim = static_cast<int>(x.size());
  if (IsRotated(type)) {
    Rotate(x.data(), dim);
    Rotate(found.data(), dim);
  }
  float most = 0;
  for (int first = 0; first < dim; first += kGgmlBlock) {
    float largest = 0, error = 0;
    for (int i = first; i < first + kGgmlBlock; ++i) {
      largest = std::max(largest, std::abs(x[i]));
      error = std::max(error, std::abs(x[i] - found[i]));
    }
    EXPECT_LE(error, largest / StepsOf(type) * 1.02f) << CompressedTypeName(type) << " of " << dim;
    most = std::max(most, error);
  }
  return most;
}

TEST(GgmlRecordsTest, TakeTheBytesThatTheHeaderNames) {
  EXPECT_EQ(FormatOf(CompressedType::kInt8, 128).RowStride(), 272u);  // 8.5 bits an element
  EXPECT_EQ(FormatOf(CompressedType::kInt4, 128).RowStride(), 176u);  // 5.5
  EXPECT_EQ(FormatOf(CompressedType::kInt3, 128).RowStride(), 144u);  // 4.5
  EXPECT_EQ(FormatOf(CompressedType::kInt3, 576, false).RowStride(), 324u);
}

TEST(GgmlRecordsTest, RowsComeBackWithinAStep) {
  for (const CompressedType type : kTypes) {
    for (const int dim : {32, 64, 96, 128, 192, 256, 512, 576}) {
      const CompressedFormat format = FormatOf(type, dim);
      std::vector<float> key = RandomNormal(dim, 3), value = RandomNormal(dim, 4);
      std::vector<float> centre = RandomNormal(dim, 5), found_key(dim), found_value(dim);
      for (int i = 0; i < dim; ++i) {
        centre[i] *= 30;
        key[i] += format.IsCentred() ? centre[i] : 0;
      }
      const float* const of = format.IsCentred() ? centre.data() : nullptr;
      std::vector<std::byte> record(format.RowStride());
      CompressRow(format, {.centre = of}, key.data(), value.data(), record.data());
      DecompressRow(format, of, record.data(), found_key.data(), found_value.data());
      for (int i = 0; i < dim && of != nullptr; ++i) {
        key[i] -= centre[i];
        found_key[i] -= centre[i];
      }
      EXPECT_GT(ExpectWithinAStep(type, key, found_key), 0);
      EXPECT_GT(ExpectWithinAStep(type, value, found_value), 0);
      // The reference reads these records with the same function.
      std::vector<float> same_key(dim), same_value(dim);
      ReferenceDecompressRow(format, nullptr, record.data(), same_key.data(), same_value.data());
      EXPECT_EQ(same_value, found_value);
    }
  }
}

TEST(GgmlRecordsTest, WithoutValuesTheKeyIsTheValue) {
  const CompressedFormat format = FormatOf(CompressedType::kInt4, 192, false);
  const std::vector<float> key = RandomNormal(192, 3), centre = RandomNormal(192, 5);
  std::vector<float> found_key(192), found_value(192);
  std::vector<std::byte> record(format.RowStride());
  CompressRow(format, {.centre = centre.data()}, key.data(), nullptr, record.data());
  DecompressRow(format, centre.data(), record.data(), found_key.data(), found_value.data());
  EXPECT_EQ(found_key, found_value);
  for (int i = 0; i < 192; ++i) EXPECT_NEAR(found_key[i], key[i], 0.5);
}

TEST(GgmlRecordsTest, ANumberThatIsNoneSpoilsItsKeyAlone) {
  for (const CompressedType type : kTypes) {
    for (const float none :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      const CompressedFormat format = FormatOf(type, 64);
      std::vector<float> key = RandomNormal(64, 3), found_key(64), found_value(64);
      const std::vector<float> value = RandomNormal(64, 4);
      key[40] = none;
      std::vector<std::byte> record(format.RowStride());
      CompressRow(format, {}, key.data(), value.data(), record.data());
      DecompressRow(format, nullptr, record.data(), found_key.data(), found_value.data());
      EXPECT_TRUE(std::ranges::all_of(found_key, [](float x) { return std::isnan(x); }));
      EXPECT_TRUE(std::ranges::all_of(found_value, [](float x) { return std::isfinite(x); }));
    }
  }
}

}  // namespace
}  // namespace ebb::ggml_records_test
