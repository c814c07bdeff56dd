// Compares the reference kernel, with which all others are compared, to numbers worked out by hand.
#include <cmath>
#include <vector>

#include "gtest/gtest.h"
#include "src/attention/expected_for_test.h"
#include "src/attention/rows_for_test.h"

namespace ebb {
namespace {

constexpr int kDim = 16;

// ReferenceTest has three rows whose logits are 0, ln 2 and ln 5 for the query e_0, and whose
// values are 10, 20 and 40.
class ReferenceTest : public ::testing::Test {
 protected:
  ReferenceTest() : rows_({.format = shape_.format, .num_rows = {3}}), q_(kDim, 0.0f) {
    q_[0] = 2;
    const float logits[] = {0, std::log(2.0f), std::log(5.0f)};
    const float values[] = {10, 20, 40};
    for (int r = 0; r < 3; ++r) {
      std::vector<float> key(kDim, 3.0f), value(kDim, values[r]);
      key[0] = logits[r];
      value[1] = -values[r];
      reference_.store_row(RowType::kF32, key.data(), rows_.Key(0, r), kDim);
      reference_.store_row(RowType::kF32, value.data(), rows_.Value(0, r), kDim);
    }
  }
  void Fold(uint32_t begin, uint32_t end, const FoldOutput& out) {
    const std::byte* keys[kChunkRows];
    LocateKeys(rows_.views()[0], shape_.format, begin, end, keys);
    reference_.fold({.format = shape_.format,
                     .keys = keys,
                     .num_rows = static_cast<int>(end - begin),
                     .next_keys = keys,
                     .q = q_.data(),
                     .num_heads = 1,
                     .scale = shape_.scale,
                     .soft_cap = shape_.soft_cap},
                    out);
  }

  const AttentionKernel& reference_ = ReferenceAttention();
  AttentionShape shape_ = {.num_q_heads = 1,
                           .num_kv_heads = 1,
                           .scale = 0.5f,
                           .format = {.type = RowType::kF32, .head_dim = kDim}};
  TestRows rows_;
  std::vector<float> q_;
};

TEST_F(ReferenceTest, FoldGivesMaximumSumAndWeightedValues) {
  float m = 0, l = 0, p[3] = {};
  std::vector<float> o(kDim);
  Fold(0, 3, {.m = &m, .l = &l, .head_stride = 1, .o = o.data(), .p = p, .p_stride = 3});
  EXPECT_FLOAT_EQ(m, std::log(5.0f));
  EXPECT_FLOAT_EQ(l, 1.6f);
  EXPECT_FLOAT_EQ(p[0], 0.2f);
  EXPECT_FLOAT_EQ(p[1], 0.4f);
  EXPECT_FLOAT_EQ(p[2], 1.0f);
  EXPECT_FLOAT_EQ(o[0], 50.0f);
  EXPECT_FLOAT_EQ(o[1], -50.0f);
}

// The expected values use tanh(ln x) = (x * x - 1) / (x * x + 1).
TEST_F(ReferenceTest, ASoftCapIsTheHyperbolicTangentOfLogits) {
  shape_.soft_cap = 2;
  q_[0] = 4;
  float m = 0, l = 0, p[3] = {};
  std::vector<float> o(kDim);
  Fold(0, 3, {.m = &m, .l = &l, .head_stride = 1, .o = o.data(), .p = p, .p_stride = 3});
  EXPECT_FLOAT_EQ(m, 2 * 12.0f / 13);
  EXPECT_FLOAT_EQ(p[0], std::exp(-2 * 12.0f / 13));
  EXPECT_FLOAT_EQ(p[1], std::exp(2 * (0.6f - 12.0f / 13)));
  EXPECT_FLOAT_EQ(l, p[0] + p[1] + 1);
}

TEST_F(ReferenceTest, ChunksMergeToTheWholeSoftmax) {
  float m[2] = {}, l[2] = {}, p[3] = {}, weights[2] = {};
  std::vector<float> o(2 * kDim), out(kDim);
  for (uint32_t c = 0; c < 2; ++c) {
    Fold(2 * c, 2 + c,
         {.m = m + c,
          .l = l + c,
          .head_stride = 2,
          .o = o.data() + c * kDim,
          .p = p + 2 * c,
          .p_stride = 3});
  }
  const MergeInput in = {
      .m = m, .l = l, .o = o.data(), .o_stride = kDim, .num_chunks = 2, .head_dim = kDim};
  EXPECT_TRUE(reference_.chunk_weights(in, weights));
  reference_.merge(in, weights, out.data());
  EXPECT_FLOAT_EQ(out[0], 250.0f / 8);
  EXPECT_FLOAT_EQ(out[1], -250.0f / 8);
  float mass[3] = {1, 1, 1};
  reference_.add_mass({.p = p, .weights = weights, .num_heads = 1, .end = 2}, mass);
  reference_.add_mass({.p = p + 2, .weights = weights + 1, .num_heads = 1, .end = 1}, mass + 2);
  EXPECT_FLOAT_EQ(mass[0], 1 + 1.0f / 8);
  EXPECT_FLOAT_EQ(mass[1], 1 + 2.0f / 8);
  EXPECT_FLOAT_EQ(mass[2], 1 + 5.0f / 8);
}

TEST_F(ReferenceTest, PrefillSeesARowFromItsPositionToItsLastVisibleOne) {
  rows_.SetPositions({0, 1, 2});
  rows_.SetLastVisible({1, kVisibleForEver, kVisibleForEver});
  const std::vector<Position> positions = {0, 1, 2};
  std::vector<float> q;
  for (int t = 0; t < 3; ++t) q.insert(q.end(), q_.begin(), q_.end());
  const Expected got = Expect(shape_, rows_.views(), q.data(), positions);
  EXPECT_FLOAT_EQ(got.out[0], 10.0f);
  EXPECT_FLOAT_EQ(got.out[kDim], 50.0f / 3);
  EXPECT_FLOAT_EQ(got.out[2 * kDim], 240.0f / 7);
  EXPECT_FLOAT_EQ(got.mass[0][0], 1 + 1.0f / 3);
  EXPECT_FLOAT_EQ(got.mass[0][1], 2.0f / 3 + 2.0f / 7);
  EXPECT_FLOAT_EQ(got.mass[0][2], 5.0f / 7);
}

}  // namespace
}  // namespace ebb
