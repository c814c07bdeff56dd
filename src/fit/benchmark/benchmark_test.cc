#include "ebb/benchmark.h"

#include <array>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/fit/benchmark/benchmark_team.h"

namespace ebb {
namespace {

using ::testing::HasSubstr;

TEST(SpreadTest, TakesTheMiddleAndTheEnds) {
  const Spread odd = SpreadOf(std::array{3.0, 1.0, 2.0});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.min, 1);
  EXPECT_EQ(odd.max, 3);
  EXPECT_EQ(SpreadOf(std::array{4.0, 1.0, 2.0, 8.0}).median, 3);
  EXPECT_EQ(SpreadOf({}).median, 0);
}

TEST(BenchmarkTeamTest, BarrierHoldsEveryThreadUntilAllArrived) {
  constexpr int kThreads = 3;
  constexpr int kRounds = 200;
  SpinBarrier barrier(kThreads);
  std::atomic<int> arrived = 0;
  std::atomic<int> early = 0;
  ASSERT_TRUE(RunTeam(kThreads, [&](int) {
                for (int round = 1; round <= kRounds; ++round) {
                  arrived.fetch_add(1);
                  barrier.Wait();
                  if (arrived.load() < round * kThreads) early.fetch_add(1);
                  barrier.Wait();
                }
              }).ok());
  EXPECT_EQ(arrived.load(), kThreads * kRounds);
  EXPECT_EQ(early.load(), 0);
}

TEST(MemoryBenchmarkTest, GivesRatesInOrder) {
  const auto result = BenchmarkMemory({.threads = 2, .bytes = 4 << 20, .repetitions = 3});
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->threads, 2);
  EXPECT_FALSE(result->kernel.empty());
  for (const Spread& spread : {result->read_gb_s, result->copy_gb_s}) {
    EXPECT_GT(spread.min, 0);
    EXPECT_LE(spread.min, spread.median);
    EXPECT_LE(spread.median, spread.max);
  }
}

TEST(MemoryBenchmarkTest, RefusesOptionsOutOfRange) {
  for (const MemoryBenchmarkOptions& options :
       {MemoryBenchmarkOptions{.threads = -1}, MemoryBenchmarkOptions{.bytes = 100},
        MemoryBenchmarkOptions{.repetitions = 0}}) {
    const auto result = BenchmarkMemory(options);
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(result.status().message(), HasSubstr("1 MiB"));
  }
}

AttentionBenchmarkOptions SmallOptions() {
  return {.shape = {.num_layers = 2, .num_q_heads = 6, .num_kv_heads = 2, .head_dim = 48},
          .rows = 300,
          .threads = 2,
          .repetitions = 2,
          .steps = 2};
}

TEST(AttentionBenchmarkTest, AgreesWithTheReferenceForEveryRowType) {
  for (const RowType type : {RowType::kF16, RowType::kBf16, RowType::kF32}) {
    AttentionBenchmarkOptions options = SmallOptions();
    options.kv_type = type;
    int repetitions = 0;
    options.progress = [&](int done) { repetitions = done; };
    const auto result = BenchmarkAttention(options);
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    EXPECT_EQ(result->rows_kept, 300);
    EXPECT_EQ(result->bytes_per_step, size_t{2} * 2 * 300 * 2 * 48 * RowTypeBytes(type));
    EXPECT_LT(result->max_error, 1e-4);
    EXPECT_EQ(repetitions, 2);
    for (const AttentionRate& rate : {result->without_mass, result->with_mass}) {
      EXPECT_GT(rate.read_gb_s.median, 0);
      EXPECT_GT(rate.share_of_limit.median, 0);
      // The bytes of a step, the speed and the time of a step must agree.
      EXPECT_NEAR(rate.read_gb_s.max * 1e6 * rate.step_ms.min,
                  static_cast<double>(result->bytes_per_step), 1);
    }
  }
}

TEST(AttentionBenchmarkTest, ReadsTheShareThatIsKept) {
  AttentionBenchmarkOptions options = SmallOptions();
  options.keep = 0.25;
  const auto result = BenchmarkAttention(options);
  ASSERT_TRUE(result.ok()) << result.status().ToString();
  EXPECT_EQ(result->rows_kept, 75);
  EXPECT_EQ(result->bytes_per_step, 2u * 2 * 75 * 2 * 48 * 2);
}

TEST(AttentionBenchmarkTest, MeasuresTheKernelThatIsForced) {
  setenv("EBB_ATTENTION", "reference", 1);
  const auto reference = BenchmarkAttention(SmallOptions());
  setenv("EBB_ATTENTION", "abacus", 1);
  const auto unknown = BenchmarkAttention(SmallOptions());
  unsetenv("EBB_ATTENTION");
  ASSERT_TRUE(reference.ok()) << reference.status().ToString();
  EXPECT_EQ(reference->kernel, "reference");
  EXPECT_EQ(reference->max_error, 0);
  EXPECT_THAT(unknown.status().message(), HasSubstr("this machine can run: "));
}

TEST(AttentionBenchmarkTest, RefusesOptionsOutOfRange) {
  std::vector<AttentionBenchmarkOptions> bad(6, SmallOptions());
  bad[0].rows = 0;
  bad[1].keep = 0;
  bad[2].keep = NAN;
  bad[3].threads = -1;
  bad[4].steps = 0;
  bad[5].shape.num_layers = 0;
  for (const AttentionBenchmarkOptions& options : bad) {
    const auto result = BenchmarkAttention(options);
    EXPECT_EQ(result.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(result.status().message(), HasSubstr("the attention benchmark needs"));
  }
  AttentionBenchmarkOptions options = SmallOptions();
  options.shape.head_dim = 50;
  EXPECT_EQ(BenchmarkAttention(options).status().code(), StatusCode::kUnsupported);
}

// Packed layouts need a number of rows that is a multiple of 8; the last super-block of a row
// differs between the shapes.
TEST(ProductBenchmarkTest, TokensHaveTheirBitsInAnyBatch) {
  for (const auto& [columns, rows] : {std::pair(256, 64), std::pair(768, 67), std::pair(1536, 136),
                                      std::pair(1792, 200), std::pair(2560, 65)}) {
    const auto result =
        BenchmarkProducts({.types = {"f32", "q8_0", "q6_K", "q5_K", "q5_1", "q5_0", "q4_K", "q4_1",
                                     "q4_0", "iq4_xs", "iq4_nl", "mxfp4", "q3_K", "iq3_s", "q2_K"},
                           .columns = columns,
                           .rows = rows,
                           .batch = 8,
                           .threads = 2,
                           .bytes = 1,
                           .repetitions = 1});
    ASSERT_TRUE(result.ok()) << result.status().ToString();
    for (const ProductRate& rate : result->rates) {
      EXPECT_TRUE(rate.same_bits) << rate.type << " " << rate.layout << " " << rows << " x "
                                  << columns;
    }
  }
}

}  // namespace
}  // namespace ebb
