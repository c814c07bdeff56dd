// Rows on two sides: the device's list and the host's merge to what one list gives.
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "src/attention/decode.h"
#include "src/attention/expected_for_test.h"
#include "src/attention/rows_for_test.h"

namespace ebb {
namespace {

constexpr int kKvHeads = 2;
constexpr size_t kRows = 333;

// Every row but the last goes to either side by lot; `share` of them to the host.
struct Sides {
  Sides(std::span<const RowsView> all, double share, uint32_t seed) {
    std::mt19937 random(seed);
    std::bernoulli_distribution to_host(share);
    for (const RowsView& view : all) {
      for (uint32_t row = 0; row < view.size(); ++row) {
        const size_t side = row + 1 < view.size() && to_host(random) ? 1 : 0;
        slots[side].resize(all.size());
        indices[side].resize(all.size());
        const size_t head = &view - all.data();
        slots[side][head].push_back(view.slots[row]);
        indices[side][head].push_back(row);
      }
    }
    for (size_t side = 0; side < 2; ++side) {
      slots[side].resize(all.size());
      indices[side].resize(all.size());
      for (size_t head = 0; head < all.size(); ++head) {
        views[side].push_back({.pages = all[head].pages, .slots = slots[side][head]});
        spans[side].push_back(indices[side][head]);
      }
    }
  }
  std::vector<std::vector<Slot>> slots[2];
  std::vector<std::vector<uint32_t>> indices[2];
  std::vector<RowsView> views[2];
  std::vector<std::span<const uint32_t>> spans[2];
};

struct Outcome {
  std::vector<float> out;
  std::vector<std::vector<float>> mass;
};

Outcome Attend(const AttentionKernel& kernel, const AttentionShape& shape, const Sides& sides,
               const std::vector<float>& q, int num_threads) {
  Outcome outcome;
  outcome.out.resize(q.size());
  outcome.mass.assign(shape.num_q_heads, std::vector<float>(kRows, 0.0f));
  std::vector<float*> targets;
  for (auto& mass : outcome.mass) targets.push_back(mass.data());
  bool not_finite = false;
  const DecodeQuery query = {.rows = sides.views[0],
                             .mass_elements = sides.spans[0],
                             .host_rows = sides.views[1],
                             .host_mass_elements = sides.spans[1],
                             .q = q.data(),
                             .out = outcome.out.data(),
                             .mass = {.per_query_head = targets, .not_finite = &not_finite}};
  DecodeAttention attention(kernel, shape);
  attention.Reserve(1, kRows, num_threads);
  attention.Plan({&query, 1});
  for (int thread = 0; thread < num_threads; ++thread) attention.FoldHost(thread, num_threads);
  for (int thread = num_threads; thread-- > 0;) attention.Fold(thread, num_threads);
  for (int thread = 0; thread < num_threads; ++thread) attention.Merge(thread, num_threads);
  EXPECT_FALSE(not_finite);
  return outcome;
}

class DecodeHostTest : public testing::TestWithParam<std::string> {
 protected:
  const AttentionKernel& kernel_ = KernelByName(GetParam());
};

TEST_P(DecodeHostTest, AnySplitAgreesWithTheReferenceInOutputAndMass) {
  for (const RowType type : {RowType::kF16, RowType::kF32}) {
    const AttentionShape shape = ShapeOf(type, 64, kKvHeads, 3);
    const TestRows rows({.format = shape.format, .num_rows = {kRows, kRows}});
    const auto q = RandomNormal(size_t(shape.num_q_heads) * 64, 5);
    const Position last = std::numeric_limits<Position>::max();
    const Expected want = Expect(shape, rows.views(), q.data(), std::span(&last, 1));
    for (const double share : {0.0, 0.1, 0.5, 0.9, 1.0}) {
      const Sides sides(rows.views(), share, 7);
      const Outcome got = Attend(kernel_, shape, sides, q, 1);
      const std::string what = std::to_string(share);
      ExpectNear(got.out, want.out, RelativeTolerance(want) * want.max_value, what + " out");
      for (int head = 0; head < shape.num_q_heads; ++head) {
        ExpectNear(got.mass[head], want.mass[head], RelativeTolerance(want), what + " mass");
      }
    }
  }
}

TEST_P(DecodeHostTest, ThreadsChangeNoBit) {
  const AttentionShape shape = ShapeOf(RowType::kF16, 64, kKvHeads, 3);
  const TestRows rows({.format = shape.format, .num_rows = {kRows, kRows}});
  const auto q = RandomNormal(size_t(shape.num_q_heads) * 64, 5);
  const Sides sides(rows.views(), 0.4, 9);
  const Outcome one = Attend(kernel_, shape, sides, q, 1);
  for (const int threads : {2, 3, 7, 40}) {
    const Outcome many = Attend(kernel_, shape, sides, q, threads);
    EXPECT_EQ(many.out, one.out) << threads;
    EXPECT_EQ(many.mass, one.mass) << threads;
  }
}

INSTANTIATE_TEST_SUITE_P(Kernels, DecodeHostTest, testing::ValuesIn(KernelNames()));

}  // namespace
}  // namespace ebb
