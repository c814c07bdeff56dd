#include "src/fit/projections.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace ebb {
namespace {

const PaperShape& Shape(std::string_view name) {
  return *std::ranges::find(PaperShapes(), name, &PaperShape::name);
}

TEST(Projections, TheCountOf70BByQueryHeadsIsThePapersAndEightTimesTheHonestOne) {
  const PaperProjection row = PaperProjections()[4];
  ASSERT_EQ(row.model, "70B");
  // 2 * 80 layers * 64 heads * 128 * 2 bytes * 8 * 4,096 tokens: the paper's 80 "GB".
  EXPECT_EQ(row.cache_bytes_by_query_heads, uint64_t{80} << 30);
  EXPECT_EQ(row.cache_bytes_by_kv_heads, uint64_t{10} << 30);
  EXPECT_NEAR(PaperProjection::Share(row.paper_cache_gb, row.weights_gb), 0.36, 0.005);
}

TEST(Projections, ThePapersCountOf7BIsNeitherItsFormulasNorByKvHeads) {
  const PaperProjection row = PaperProjections()[0];
  ASSERT_EQ(row.model, "7B");
  EXPECT_EQ(row.cache_bytes_by_query_heads, 822'083'584u);  // its text has "about 800 MB"
  EXPECT_EQ(row.cache_bytes_by_kv_heads, 117'440'512u);
  EXPECT_EQ(row.paper_cache_gb, 0.5);
}

TEST(Projections, Llama8BHasTheCoefficientsOfThePaper) {
  const PaperShape& llama = Shape("Llama 3.1 8B");
  EXPECT_NEAR(StepReadBytes(llama, 1, 0), 1.50e10, 0.01e10);
  EXPECT_NEAR(StepReadBytes(llama, 1, 0) / 2, 7.5e9, 0.01e9);
  EXPECT_EQ(CacheReadBytes(llama, 1, 1), 131072);
  EXPECT_EQ(StepFlops(llama, 1, 1) - StepFlops(llama, 1, 0), 524288);
}

TEST(Projections, TheCacheCostsWhatThePaperSaysAtBatch256) {
  for (const int64_t tokens : {8192, 32768}) {
    EXPECT_GT(CacheShareOfStep(Shape("Qwen-R1 1.5B"), 256, tokens, 1), 0.9);
    EXPECT_GT(CacheShareOfStep(Shape("Qwen-R1 7B"), 256, tokens, 1), 0.8);
  }
}

TEST(Projections, AShareGrowsWithBatchAndLengthAndFallsWithCompression) {
  const PaperShape& llama = Shape("Llama 3.1 8B");
  // 1.31e5 * 8,192 of 1.50e10 more.
  EXPECT_NEAR(CacheShareOfStep(llama, 1, 8192, 1), 1.0737e9 / (1.5e10 + 1.0737e9), 2e-4);
  EXPECT_LT(CacheShareOfStep(llama, 1, 8192, 1), CacheShareOfStep(llama, 16, 8192, 1));
  EXPECT_LT(CacheShareOfStep(llama, 16, 8192, 1), CacheShareOfStep(llama, 16, 32768, 1));
  EXPECT_LT(CacheShareOfStep(llama, 16, 32768, 8), CacheShareOfStep(llama, 16, 32768, 1));
}

}  // namespace
}  // namespace ebb
