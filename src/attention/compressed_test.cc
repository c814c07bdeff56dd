#include "src/attention/compressed.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/attention/compressed_for_test.h"
#include "src/attention/expected_for_test.h"
#include "src/attention/rows_for_test.h"

namespace ebb {
namespace {

constexpr CompressedType kTypes[] = {CompressedType::kInt8, CompressedType::kInt4,
                                     CompressedType::kInt3, CompressedType::kInt2,
                                     CompressedType::kInt8Naive};
constexpr int kHeadSizes[] = {16, 32, 48, 64, 80, 96, 112, 128, 144, 192, 256, 512, 576};

double Dot(std::span<const float> a, std::span<const float> b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}
float Largest(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) largest = std::max(largest, std::fabs(value));
  return largest;
}

std::string Name(const CompressedFormat& format) {
  return std::string(CompressedTypeName(format.type)) + " dim " + std::to_string(format.head_dim);
}

TEST(CompressedFormatTest, ARowTakesTheBytesThatTheHeaderNames) {
  const auto stride = [](CompressedType type, int dim) {
    return CompressedFormat{.type = type, .head_dim = dim}.RowStride();
  };
  EXPECT_EQ(stride(CompressedType::kInt8, 64), 132u);
  EXPECT_EQ(stride(CompressedType::kInt8, 80), 164u);
  EXPECT_EQ(stride(CompressedType::kInt8, 128), 260u);
  EXPECT_EQ(stride(CompressedType::kInt4, 64), 92u);    // 5.75 bits per element
  EXPECT_EQ(stride(CompressedType::kInt4, 128), 180u);  // 5.6 bits
  EXPECT_EQ(stride(CompressedType::kInt4, 80), 48u + 16 + 32 + 16 + 16);
  EXPECT_EQ(stride(CompressedType::kInt3, 64), 64u);    // 4 bits per element
  EXPECT_EQ(stride(CompressedType::kInt3, 128), 124u);  // 3.9 bits
  EXPECT_EQ(stride(CompressedType::kInt3, 80), 32u + 16 + 24 + 16 + 12);
  EXPECT_EQ(stride(CompressedType::kInt2, 64), 44u);   // 2.75 bits per element
  EXPECT_EQ(stride(CompressedType::kInt2, 128), 84u);  // 2.6 bits
  for (const CompressedType type : kTypes) {
    for (const int dim : kHeadSizes) {
      if (!HoldsHeads(type, dim)) continue;
      if (HoldsHeads(type, dim)) EXPECT_EQ(stride(type, dim) % 4, 0u) << dim;
    }
  }
}

TEST(CompressedFormatTest, ARowWithoutValuesTakesTheBytesOfItsKey) {
  const auto stride = [](CompressedType type, int dim) {
    return CompressedFormat{.type = type, .head_dim = dim, .has_values = false}.RowStride();
  };
  EXPECT_EQ(stride(CompressedType::kInt8, 576), 580u);
  EXPECT_EQ(stride(CompressedType::kInt8Naive, 576), 580u);
  EXPECT_EQ(stride(CompressedType::kInt4, 576), 9 * 48u + 4);
  EXPECT_EQ(stride(CompressedType::kInt3, 576), 9 * 32u + 4);
  EXPECT_EQ(stride(CompressedType::kInt4, 80), 48u + 16 + 4);
  EXPECT_EQ(stride(CompressedType::kInt2, 576), 9 * 24u + 4);
}

TEST(CompressedFormatTest, EveryKeyOfAGroupHasBitsOfItsOwn) {
  std::vector<int> used(48 * 8, 0);
  for (int i = 0; i < kKeyGroup; ++i) {
    const KeyPlace place = PlaceOfKey(i);
    for (int b = 0; b < 4; ++b) ++used[place.low * 8 + place.low_shift + b];
    for (int b = 0; b < 2; ++b) ++used[place.high * 8 + place.high_shift + b];
  }
  EXPECT_TRUE(std::ranges::all_of(used, [](int n) { return n == 1; }));
}

class CompressedTest : public ::testing::TestWithParam<std::string> {
 protected:
  const AttentionKernel& kernel_ = KernelByName(GetParam());
};

TEST_P(CompressedTest, RotatingTwiceGivesWhatWasThere) {
  for (const int dim : kHeadSizes) {
    const std::vector<float> x = RandomNormal(dim, 7);
    std::vector<float> y = x;
    kernel_.rotate(y.data(), dim);
    EXPECT_FALSE(std::ranges::equal(x, y)) << dim;
    kernel_.rotate(y.data(), dim);
    ExpectNear(y, x, 1e-5f, "head size " + std::to_string(dim));
  }
}

TEST_P(CompressedTest, RotationKeepsProductsAndSpreadsASingleElement) {
  for (const int dim : kHeadSizes) {
    std::vector<float> a = RandomNormal(dim, 1), b = RandomNormal(dim, 2);
    const double before = Dot(a, b);
    kernel_.rotate(a.data(), dim);
    kernel_.rotate(b.data(), dim);
    EXPECT_NEAR(Dot(a, b), before, 1e-4) << dim;
    std::vector<float> one(dim, 0.0f);
    one[3] = 1;
    kernel_.rotate(one.data(), dim);
    EXPECT_NEAR(Dot(one, one), 1, 1e-6);
    EXPECT_LE(Largest(one), 0.2501f) << "spread over 16 elements at least";
  }
}

TEST_P(CompressedTest, RotatesAsTheReferenceDoes) {
  for (const int dim : kHeadSizes) {
    std::vector<float> want = RandomNormal(dim, 3), got = want;
    ReferenceAttention().rotate(want.data(), dim);
    kernel_.rotate(got.data(), dim);
    ExpectNear(got, want, 4e-6f, std::to_string(dim));
  }
}

// Levels has the numbers by which the largest magnitude must be divided to get half a step: for
// int8's symmetric grid twice the largest integer; for an asymmetric grid the largest integer,
// because the range is at most twice the largest magnitude.
struct Levels {
  int keys, values;
};
Levels LevelsOf(CompressedType type) {
  if (IsInt8(type)) return {.keys = 254, .values = 254};
  return type == CompressedType::kInt4 ? Levels{.keys = 63, .values = 15}
                                       : Levels{.keys = 15, .values = 7};
}

// The error is at most half a step of each grid before the rotation back, which preserves lengths.
TEST_P(CompressedTest, ARowComesBackWithinHalfAStep) {
  for (const CompressedType type : kTypes) {
    if (type == CompressedType::kInt2) continue;  // its levels have no steps
    for (const int dim : kHeadSizes) {
      if (!HoldsHeads(type, dim)) continue;
      const CompressedFormat format = {.type = type, .head_dim = dim};
      for (const float size : {1e-6f, 1.0f, 3e4f}) {
        std::vector<float> key = RandomNormal(dim, 4), value = RandomNormal(dim, 5);
        for (float& x : key) x = x * size + size;
        for (float& x : value) x *= size;
        std::vector<std::byte> row(format.RowStride());
        std::vector<float> key_back(dim), value_back(dim);
        kernel_.compress_row(format, {}, key.data(), value.data(), row.data());
        kernel_.decompress_row(format, nullptr, row.data(), key_back.data(), value_back.data());
        if (IsRotated(type)) {
          for (std::vector<float>* x : {&key, &value, &key_back, &value_back})
            kernel_.rotate(x->data(), dim);
        }
        const Levels levels = LevelsOf(type);
        // Rounding the scale and the minimum to bf16 adds up to 1/128.
        const auto half_step = [](float largest, int steps) {
          return largest * 1.02f / static_cast<float>(steps);
        };
        ExpectNear(key_back, key, half_step(Largest(key), levels.keys), Name(format) + " key");
        ExpectNear(value_back, value, half_step(Largest(value), levels.values),
                   Name(format) + " value");
      }
    }
  }
}

TEST_P(CompressedTest, ARowWithoutValuesHasItsKeyForAValue) {
  for (const CompressedType type : kTypes) {
    for (const int dim : kHeadSizes) {
      if (!HoldsHeads(type, dim)) continue;
      const CompressedFormat with = {.type = type, .head_dim = dim};
      const CompressedFormat without = {.type = type, .head_dim = dim, .has_values = false};
      const std::vector<float> key = RandomNormal(dim, 4), centre = RandomNormal(dim, 6);
      std::vector<std::byte> row(with.RowStride());
      std::vector<float> want(dim), key_back(dim), value_back(dim);
      const float* const around = with.IsCentred() ? centre.data() : nullptr;
      kernel_.compress_row(with, {.centre = around}, key.data(), key.data(), row.data());
      kernel_.decompress_row(with, around, row.data(), want.data(), value_back.data());
      kernel_.compress_row(without, {.centre = around}, key.data(), nullptr, row.data());
      kernel_.decompress_row(without, around, row.data(), key_back.data(), value_back.data());
      EXPECT_EQ(key_back, want) << Name(without);
      EXPECT_EQ(value_back, want) << Name(without);
    }
  }
}

// StreamOfKeys has keys as in some models: their mean, the same for the whole stream, is several
// times as long as their differences.
struct StreamOfKeys {
  explicit StreamOfKeys(int dim, int num_rows)
      : mean(RandomNormal(dim, 21)), rows(RandomNormal(size_t(dim) * num_rows, 22)) {
    for (float& x : mean) x *= 5;
    for (size_t i = 0; i < rows.size(); ++i) rows[i] += mean[i % dim];
  }
  std::vector<float> mean, rows;
};

TEST_P(CompressedTest, ACentreLeavesTheErrorOfTheDeviationAlone) {
  constexpr int kRows = 32;
  for (const CompressedType type :
       {CompressedType::kInt8, CompressedType::kInt4, CompressedType::kInt3}) {
    for (const int dim : kHeadSizes) {
      if (!HoldsHeads(type, dim)) continue;
      const CompressedFormat format = {.type = type, .head_dim = dim};
      const StreamOfKeys keys(dim, kRows);
      const std::vector<float> value(dim, 1.0f);
      const auto error = [&](const float* centre, bool of_largest) {
        double sum = 0, largest = 0;
        std::vector<std::byte> row(format.RowStride());
        std::vector<float> key(dim), value_back(dim);
        for (int r = 0; r < kRows; ++r) {
          const float* from = keys.rows.data() + size_t(r) * dim;
          kernel_.compress_row(format, {.centre = centre}, from, value.data(), row.data());
          kernel_.decompress_row(format, centre, row.data(), key.data(), value_back.data());
          for (int i = 0; i < dim; ++i) key[i] -= from[i];
          sum += Dot(key, key);
          kernel_.rotate(key.data(), dim);
          largest = std::max<double>(largest, Largest(key));
        }
        return of_largest ? largest : std::sqrt(sum / (kRows * dim));
      };
      // The error is half a step of deviations below 5.5.
      EXPECT_LT(error(keys.mean.data(), true), 5.5 * 1.02 / (LevelsOf(type).keys)) << dim;
      EXPECT_LT(error(keys.mean.data(), false), 0.5 * error(nullptr, false)) << Name(format);
    }
  }
}

// With a centre far from the origin, the f16 copy of a key is less precise than its code. Few rows
// may change for that reason when they are compressed again, and then by one step.
TEST_P(CompressedTest, FewRowsAroundACentreChangeWhenTheySinkAgain) {
  constexpr int kRows = 500;
  for (const CompressedType type :
       {CompressedType::kInt8, CompressedType::kInt4, CompressedType::kInt3}) {
    const CompressedFormat format = {.type = type, .head_dim = 128};
    const StreamOfKeys keys(128, kRows);
    const float* const centre = keys.mean.data();
    const std::vector<float> value = RandomNormal(128, 23);
    std::vector<std::byte> once(format.RowStride()), again(format.RowStride()), f16(2 * 128);
    std::vector<float> key(128), value_back(128), key_again(128);
    int changed = 0;
    for (int r = 0; r < kRows; ++r) {
      const float* from = keys.rows.data() + size_t(r) * 128;
      kernel_.compress_row(format, {.centre = centre}, from, value.data(), once.data());
      kernel_.decompress_row(format, centre, once.data(), key.data(), value_back.data());
      kernel_.store_row(RowType::kF16, key.data(), f16.data(), 128);
      kernel_.load_row(RowType::kF16, f16.data(), key_again.data(), 128);
      kernel_.compress_row(format, {.centre = centre}, key_again.data(), value.data(),
                           again.data());
      if (once == again) continue;
      ++changed;
      kernel_.decompress_row(format, centre, again.data(), key_again.data(), value_back.data());
      kernel_.rotate(key.data(), 128);
      kernel_.rotate(key_again.data(), 128);
      ExpectNear(key_again, key, 1.01f * 5.5f * 2 / (LevelsOf(type).keys), Name(format));
    }
    EXPECT_LT(changed, kRows / (IsInt8(type) ? 2 : 20)) << Name(format);
  }
}

TEST(CentreDotTest, IsTheProductForEveryHeadSize) {
  for (const int dim : kHeadSizes) {
    const std::vector<float> q = RandomNormal(dim, 1), centre = RandomNormal(dim, 2);
    EXPECT_NEAR(CentreDot(q.data(), centre.data(), dim), Dot(q, centre), 1e-5) << dim;
  }
}

// int8_naive serves as a control for the other formats: because it does not rotate rows, one
// outlier makes all of its elements less accurate.
TEST_P(CompressedTest, WithoutRotationAnOutlierCostsAccuracy) {
  std::vector<float> x = RandomNormal(64, 6);
  x[5] = 40;
  const auto error = [&](CompressedType type) {
    const CompressedFormat format = {.type = type, .head_dim = 64};
    std::vector<std::byte> row(format.RowStride());
    std::vector<float> key(64), value(64);
    kernel_.compress_row(format, {}, x.data(), x.data(), row.data());
    kernel_.decompress_row(format, nullptr, row.data(), key.data(), value.data());
    double sum = 0;
    for (size_t i = 0; i < x.size(); ++i) sum += std::pow(key[i] - x[i], 2);
    return std::sqrt(sum);
  };
  EXPECT_GT(error(CompressedType::kInt8Naive), 2 * error(CompressedType::kInt8));
}

TEST_P(CompressedTest, DecompressesAsTheReferenceDoes) {
  for (const CompressedType type : kTypes) {
    for (int i = 0; i < 2 * static_cast<int>(std::size(kHeadSizes)); ++i) {
      const int dim = kHeadSizes[i / 2];
      if (!HoldsHeads(type, dim)) continue;
      const CompressedFormat format = {.type = type, .head_dim = dim, .has_values = i % 2 == 0};
      TestCompressed rows({.format = format, .num_rows = {3}});
      std::vector<float> key(dim), value(dim), want_key(dim), want_value(dim);
      kernel_.decompress_row(format, rows.CentreOf(0), rows.Row(0, 1), key.data(), value.data());
      ReferenceAttention().decompress_row(format, rows.CentreOf(0), rows.Row(0, 1), want_key.data(),
                                          want_value.data());
      ExpectNear(key, want_key, 1e-5f, Name(format));
      ExpectNear(value, want_value, 1e-5f, Name(format));
    }
  }
}

TEST_P(CompressedTest, RowsOfNothingAreNothing) {
  for (const CompressedType type : kTypes) {
    const int dim = HoldsHeads(type, 80) ? 80 : 192;
    const CompressedFormat format = {.type = type, .head_dim = dim};
    for (const float x : {0.0f, 1e-37f}) {
      const std::vector<float> in(dim, x);
      std::vector<std::byte> row(format.RowStride(), std::byte{0xff});
      std::vector<float> key(dim, 1.0f), value(dim, 1.0f);
      kernel_.compress_row(format, {}, in.data(), in.data(), row.data());
      kernel_.decompress_row(format, nullptr, row.data(), key.data(), value.data());
      ExpectNear(key, in, 1e-30f, Name(format));
      ExpectNear(value, in, 1e-30f, Name(format));
    }
  }
}

TEST_P(CompressedTest, CompressingTheSameRowGivesTheSameBytesOnEveryKernel) {
  for (const CompressedType type : kTypes) {
    const int dim = HoldsHeads(type, 112) ? 112 : 192;
    const CompressedFormat format = {.type = type, .head_dim = dim};
    const std::vector<float> x = RandomNormal(2 * dim, 9);
    std::vector<std::byte> a(format.RowStride()), b(format.RowStride(), std::byte{0xff});
    kernel_.compress_row(format, {}, x.data(), x.data() + dim, a.data());
    ReferenceAttention().compress_row(format, {}, x.data(), x.data() + dim, b.data());
    EXPECT_EQ(a, b) << "every byte is written, the same on every kernel";
  }
}

// A row that is decompressed to f16 and compressed again must get its old bytes, so that no error
// adds up however often it moves.
TEST_P(CompressedTest, ARowThatRoseAndSinksAgainHasItsOldBytes) {
  constexpr int kRows = 500;
  for (const CompressedType type : kTypes) {
    for (const int dim : kHeadSizes) {
      if (!HoldsHeads(type, dim)) continue;
      const CompressedFormat format = {.type = type, .head_dim = dim};
      std::vector<float> rows = RandomNormal(size_t{kRows} * 2 * dim, 77);
      std::vector<std::byte> once(format.RowStride()), again(format.RowStride());
      std::vector<float> x(2 * size_t(dim));
      std::vector<std::byte> f16(2 * x.size());
      int changed = 0;
      for (int r = 0; r < kRows; ++r) {
        float* key = rows.data() + size_t(r) * 2 * dim;
        key[r % dim] *= static_cast<float>(1 + r % 20);  // outliers, as real keys have them
        kernel_.compress_row(format, {}, key, key + dim, once.data());
        kernel_.decompress_row(format, nullptr, once.data(), x.data(), x.data() + dim);
        kernel_.store_row(RowType::kF16, x.data(), f16.data(), 2 * dim);
        kernel_.load_row(RowType::kF16, f16.data(), x.data(), 2 * dim);
        kernel_.compress_row(format, {}, x.data(), x.data() + dim, again.data());
        changed += once != again ? 1 : 0;
      }
      // f16 may round a tail of 7 bits around a large outlier. See AnErrorDoesNotAddUp for int2.
      if (type == CompressedType::kInt2) continue;
      EXPECT_LE(changed, type == CompressedType::kInt3 ? 1 : 0) << Name(format);
    }
  }
}

// Queries holds queries that lie mostly in a few directions, as real ones do, and their moment.
struct Queries {
  Queries(int dim, int count, uint32_t seed)
      : rows(RandomNormal(size_t(count) * dim, seed)), moment(size_t(dim) * dim) {
    const std::vector<float> directions = RandomNormal(size_t{4} * dim, 5);
    const std::vector<float> lengths = RandomNormal(size_t{4} * count, seed + 1);
    for (int n = 0; n < count; ++n) {
      float* const q = rows.data() + size_t(n) * dim;
      for (int i = 0; i < dim; ++i) {
        q[i] *= 0.3f;
        for (int k = 0; k < 4; ++k) q[i] += lengths[4 * n + k] * directions[k * dim + i];
      }
      for (int i = 0; i < dim; ++i) {
        for (int j = 0; j < dim; ++j) moment[size_t(i) * dim + j] += double{q[i]} * q[j];
      }
    }
  }
  std::vector<float> rows;
  std::vector<double> moment;
};

// Errors are shares of the variance, or of the mean square of products with queries.
struct TrellisErrors {
  double key = 0, value = 0, product = 0;
};
TrellisErrors ErrorsOfInt2(const AttentionKernel& kernel, int dim, KeyMetric metric,
                           int times = 1) {
  constexpr int kRows = 200;
  const CompressedFormat format = {.type = CompressedType::kInt2, .head_dim = dim};
  const Queries queries(dim, kRows, /*seed=*/90);
  double squares = 0, products = 0;
  TrellisErrors sum;
  for (int r = 0; r < kRows; ++r) {
    const std::vector<float> key = RandomNormal(dim, 2 * r), value = RandomNormal(dim, 2 * r + 1);
    std::vector<float> key_back = key, value_back = value;
    std::vector<std::byte> row(format.RowStride());
    for (int i = 0; i < times; ++i) {
      kernel.compress_row(format, {.metric = metric}, key_back.data(), value_back.data(),
                          row.data());
      kernel.decompress_row(format, nullptr, row.data(), key_back.data(), value_back.data());
    }
    const std::span<const float> q = std::span(queries.rows).subspan(size_t(r) * dim, dim);
    for (int i = 0; i < dim; ++i) {
      sum.key += std::pow(key_back[i] - key[i], 2);
      sum.value += std::pow(value_back[i] - value[i], 2);
    }
    squares += Dot(key, key);
    sum.product += std::pow(Dot(q, key_back) - Dot(q, key), 2);
    products += std::pow(Dot(q, key), 2);
    if (times == 1 && metric == nullptr) {
      EXPECT_NEAR(Dot(key, key_back) / Dot(key, key), 1, 1.0 / 250) << "the length is kept";
      EXPECT_NEAR(Dot(value, value_back) / Dot(value, value), 1, 1.0 / 250);
    }
  }
  return {sum.key / squares, sum.value / squares, sum.product / products};
}

TEST_P(CompressedTest, Int2HasTheErrorOfItsTrellis) {
  for (const int dim : {64, 128, 192, 576}) {
    const TrellisErrors errors = ErrorsOfInt2(kernel_, dim, nullptr);
    EXPECT_NEAR(errors.key, 0.0234, 0.002) << dim;
    EXPECT_NEAR(errors.value, 0.094, 0.006) << dim;
  }
}

TEST_P(CompressedTest, AMetricMovesTheErrorsOfInt2sKeysWhereQueriesAreShort) {
  for (const int dim : {64, 128, 192}) {
    std::vector<float> metric(KeyMetricFloats(dim));
    MakeKeyMetric(Queries(dim, 1000, /*seed=*/7).moment.data(), dim, metric.data());
    const TrellisErrors plain = ErrorsOfInt2(kernel_, dim, nullptr);
    const TrellisErrors with = ErrorsOfInt2(kernel_, dim, metric.data());
    EXPECT_LT(with.product, plain.product / 8) << dim;
    EXPECT_LT(with.key, 1.5 * plain.key) << dim;
    EXPECT_EQ(with.value, plain.value) << dim;
  }
}

// A row that is compressed again may get other codes, since the search does not know the scale.
TEST_P(CompressedTest, AnErrorOfInt2DoesNotAddUpWhenARowIsCompressedAgain) {
  const TrellisErrors once = ErrorsOfInt2(kernel_, 128, nullptr);
  const TrellisErrors often = ErrorsOfInt2(kernel_, 128, nullptr, 8);
  EXPECT_LT(often.key, 1.5 * once.key);
  EXPECT_LT(often.value, 1.5 * once.value);
}

std::vector<RoundedQuery> Rounded(const CompressedFormat& format, std::span<const float> q) {
  std::vector<RoundedQuery> rounded(q.size() / format.head_dim);
  for (size_t g = 0; g < rounded.size(); ++g) {
    RoundQuery(format.type, q.data() + g * format.head_dim, format.head_dim, &rounded[g]);
  }
  return rounded;
}

// The error is half a step of nearly 16 bits for int8, of 8 bits for int4.
TEST(RoundQueryTest, LosesHalfAStepOfItsLargestElement) {
  for (const CompressedType type : kTypes) {
    const int most = IsInt8(type) ? 32639 : 127;
    for (const float size : {1e-20f, 1.0f, 1e20f}) {
      std::vector<float> q = RandomNormal(80, 5);
      for (float& x : q) x *= size;
      const RoundedQuery rounded = Rounded({.type = type, .head_dim = 80}, q)[0];
      double sum = 0;
      for (int i = 0; i < 80; ++i) {
        sum += rounded.n[i] * rounded.scale;
        EXPECT_NEAR(rounded.n[i] * rounded.scale, q[i], Largest(q) / most * 0.501f) << i;
      }
      EXPECT_NEAR(rounded.sum, sum, 1e-5 * 80 * size);
      EXPECT_EQ(rounded.n[80], 0);
      EXPECT_EQ(rounded.n[80 + 31], 0);
      if (IsInt8(type)) {
        for (int i = 0; i < 80; ++i)
          EXPECT_EQ(256 * rounded.high[i] + rounded.low[i], rounded.n[i]);
        EXPECT_EQ(rounded.sum_of_n, std::accumulate(rounded.n, rounded.n + 80, 0));
        continue;
      }
      for (int i = 0; i < 64; ++i)
        EXPECT_EQ(rounded.unpacked[PlaceOfKey(i).unpacked], rounded.n[i]);
    }
  }
}

struct FoldedChunk {
  explicit FoldedChunk(int heads, int head_dim)
      : m(heads), l(heads), p(heads * kChunkRows), o(heads * head_dim + 1) {}
  [[nodiscard]] FoldOutput Out() {
    return {.m = m.data(),
            .l = l.data(),
            .head_stride = 1,
            .o = o.data() + 1,  // misaligned by one float for any vector
            .p = p.data(),
            .p_stride = kChunkRows};
  }
  std::vector<float> m, l, p, o;
};

struct Folded {
  CompressedFormat format;
  int heads = 1;
  size_t num_rows = 1;
};

void ExpectFoldsAsTheReference(const AttentionKernel& kernel, const Folded& of) {
  const int dim = of.format.head_dim;
  const std::string what = Name(of.format) + " heads " + std::to_string(of.heads) + " rows " +
                           std::to_string(of.num_rows);
  const TestCompressed rows({.format = of.format, .num_rows = {of.num_rows}});
  std::vector<float> q = RandomNormal(of.heads * dim, 11);
  for (float& x : q) x *= 2;
  std::vector<RoundedQuery> queries = Rounded(of.format, q);
  for (int g = 0; g < of.heads; ++g) queries[g].centre_dot = static_cast<float>(3 * g - 4);
  for (uint32_t begin = 0; begin < of.num_rows; begin += kChunkRows) {
    const auto end = static_cast<uint32_t>(std::min<size_t>(of.num_rows, begin + kChunkRows));
    const std::byte* addresses[kChunkRows];
    LocateCompressed(rows.views()[0], of.format, begin, end, addresses);
    const CompressedFoldInput in = {.format = of.format,
                                    .rows = addresses,
                                    .num_rows = static_cast<int>(end - begin),
                                    .next_rows = addresses,
                                    .queries = queries.data(),
                                    .num_heads = of.heads,
                                    .scale = 1 / std::sqrt(static_cast<float>(dim))};
    FoldedChunk got(of.heads, dim), want(of.heads, dim);
    kernel.fold_compressed(in, got.Out());
    ReferenceAttention().fold_compressed(in, want.Out());
    // Sums of integers are exact. The remaining error of a logit is a few roundings of terms below
    // 200. Weights are rounded to integers, with errors of 2^-16 of the largest scale, 0.4; these
    // errors, times integers of 9 on average, have random signs in 64 rows.
    constexpr float kError = 3e-5f;
    constexpr float kWeightError = 5 * 0.3f * 9 * 8 * 0.4f / 65536;
    ExpectNear(got.m, want.m, kError, what + " m");
    ExpectNear(got.p, want.p, kError, what + " p");
    for (int g = 0; g < of.heads; ++g) {
      EXPECT_NEAR(got.l[g], want.l[g], kError * want.l[g]) << what;
      ExpectNear(std::span(got.o).subspan(1 + g * dim, dim),
                 std::span(want.o).subspan(1 + g * dim, dim), 5 * kError * want.l[g] + kWeightError,
                 what + " o");
    }
  }
}

TEST_P(CompressedTest, FoldsAsTheReferenceForEveryHeadSize) {
  for (const CompressedType type : kTypes) {
    for (const int dim : kHeadSizes) {
      if (!HoldsHeads(type, dim)) continue;
      ExpectFoldsAsTheReference(
          kernel_, {.format = {.type = type, .head_dim = dim}, .heads = 3, .num_rows = 100});
    }
  }
}

TEST_P(CompressedTest, FoldsAsTheReferenceForEveryRatioOfHeads) {
  for (const CompressedType type : kTypes) {
    for (const int heads : {1, 2, 3, 4, 5, 6, 7, 8, 33}) {
      for (const int dim : {64, 80, 128}) {
        if (!HoldsHeads(type, dim)) continue;
        ExpectFoldsAsTheReference(
            kernel_, {.format = {.type = type, .head_dim = dim}, .heads = heads, .num_rows = 70});
      }
    }
  }
}

TEST_P(CompressedTest, FoldsAsTheReferenceForEveryNumberOfRows) {
  for (const CompressedType type : kTypes) {
    for (size_t rows = 1; rows <= 200; rows += rows < 70 ? 1 : 13) {
      ExpectFoldsAsTheReference(
          kernel_, {.format = {.type = type, .head_dim = 64}, .heads = 3, .num_rows = rows});
      if (!HoldsHeads(type, 48)) continue;
      ExpectFoldsAsTheReference(
          kernel_, {.format = {.type = type, .head_dim = 48}, .heads = 2, .num_rows = rows});
    }
  }
}

// Sums of integers are equal in any order, so instruction sets may differ only in the softmax.
TEST_P(CompressedTest, AQueryOfHugeOrTinyElementsKeepsItsPrecision) {
  for (const CompressedType type : kTypes) {
    const CompressedFormat format = {.type = type, .head_dim = 512};
    std::vector<float> key(512, 1.0f), value = RandomNormal(512, 1);
    if (IsRotated(type)) kernel_.rotate(key.data(), 512);  // all elements are equal once rotated
    std::vector<std::byte> row(format.RowStride());
    kernel_.compress_row(format, {}, key.data(), value.data(), row.data());
    std::vector<const std::byte*> rows(kChunkRows, row.data());
    for (const float size : {1e-25f, 1.0f, 1e25f}) {
      // These queries give the largest possible sum of products.
      const auto queries = Rounded(format, std::vector<float>(512, size));
      FoldedChunk chunk(1, 512);
      kernel_.fold_compressed({.format = format,
                               .rows = rows.data(),
                               .num_rows = 1,
                               .next_rows = rows.data(),
                               .queries = queries.data(),
                               .num_heads = 1,
                               .scale = 1},
                              chunk.Out());
      EXPECT_NEAR(chunk.m[0] / (512 * size), 1, 0.01) << Name(format) << " " << size;
    }
  }
}

TEST_P(CompressedTest, WhatIsNotFiniteMakesTheSumNaN) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInf = std::numeric_limits<float>::infinity();
  enum class In { kKey, kValue, kQuery };
  for (const CompressedType type : kTypes) {
    for (const int dim : {64, 80}) {
      if (!HoldsHeads(type, dim)) continue;
      const CompressedFormat format = {.type = type, .head_dim = dim};
      for (const float bad : {kNaN, kInf, -kInf}) {
        for (const size_t at : {0, 20, 40}) {
          for (const In in : {In::kKey, In::kValue, In::kQuery}) {
            TestCompressed rows({.format = format, .num_rows = {41}});
            std::vector<float> key = RandomNormal(dim, 1), value = key;
            if (in == In::kKey) key[at] = bad;
            if (in == In::kValue) value[at] = bad;
            CompressRow(format, {.centre = rows.CentreOf(0)}, key.data(), value.data(),
                        rows.Row(0, at));
            std::vector<float> q = RandomNormal(3 * dim, 2);
            if (in == In::kQuery) q[dim + at] = bad;
            const auto queries = Rounded(format, q);
            const std::byte* addresses[kChunkRows];
            LocateCompressed(rows.views()[0], format, 0, 41, addresses);
            FoldedChunk chunk(3, dim);
            kernel_.fold_compressed({.format = format,
                                     .rows = addresses,
                                     .num_rows = 41,
                                     .next_rows = addresses,
                                     .queries = queries.data(),
                                     .num_heads = 3,
                                     .scale = 0.1f},
                                    chunk.Out());
            for (int g = 0; g < 3; ++g) {
              const bool want_nan = in != In::kQuery || g == 1;
              EXPECT_EQ(std::isnan(chunk.l[g]), want_nan)
                  << Name(format) << " " << bad << " at " << at << " head " << g;
            }
          }
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, CompressedTest, ::testing::ValuesIn(KernelNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace ebb
