#include <set>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/attention/attention.h"

namespace ebb {
namespace {

using ::testing::HasSubstr;

TEST(AttentionByNameTest, FindsEveryKernelUnderItsOwnNameOnly) {
  std::set<std::string_view> names;
  for (const AttentionKernel& kernel : AllAttentionKernels()) {
    const auto found = AttentionByName(kernel.name);
    ASSERT_TRUE(found.ok());
    EXPECT_EQ(*found, &kernel);
    EXPECT_TRUE(names.insert(kernel.name).second) << kernel.name << " is listed twice";
  }
  EXPECT_GE(names.size(), 2u) << "at least one instruction set, and the reference";
}

TEST(AttentionByNameTest, TheReferenceComesLastAndTheBestFirst) {
  EXPECT_EQ(AllAttentionKernels().back().name, "reference");
  EXPECT_EQ(&CpuAttention(), &AllAttentionKernels().front());
  EXPECT_NE(CpuAttention().name, "reference");
}

TEST(AttentionByNameTest, AnUnknownNameIsAnErrorThatListsTheKnownOnes) {
  for (const char* name : {"", "avx", "Reference"}) {
    const auto found = AttentionByName(name);
    ASSERT_FALSE(found.ok()) << name;
    EXPECT_EQ(found.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(found.status().message(), HasSubstr('"' + std::string(name) + '"'));
    for (const AttentionKernel& kernel : AllAttentionKernels()) {
      EXPECT_THAT(found.status().message(), HasSubstr(std::string(kernel.name)));
    }
  }
}

AttentionShape Shape(int head_dim, int num_q_heads, int num_kv_heads) {
  return {.num_q_heads = num_q_heads,
          .num_kv_heads = num_kv_heads,
          .scale = 1,
          .format = {.type = RowType::kF16, .head_dim = head_dim}};
}

TEST(CheckAttentionShapeTest, AcceptsTheHeadSizesAndRatiosOfModels) {
  for (const int head_dim : {16, 64, 80, 96, 112, 128, 256, 512, 576}) {
    EXPECT_TRUE(CheckAttentionShape(Shape(head_dim, 9, 3)).ok()) << head_dim;
  }
  EXPECT_TRUE(CheckAttentionShape(Shape(64, 1, 1)).ok());
  EXPECT_TRUE(CheckAttentionShape(Shape(64, 32, 2)).ok());
}

TEST(CheckAttentionShapeTest, NamesAHeadSizeThatDoesNotFit) {
  for (const int head_dim : {-16, 0, 8, 65, 72, 592}) {
    const Status status = CheckAttentionShape(Shape(head_dim, 9, 3));
    EXPECT_EQ(status.code(), StatusCode::kUnsupported) << head_dim;
    EXPECT_THAT(status.message(), HasSubstr("head size " + std::to_string(head_dim)));
    EXPECT_THAT(status.message(), HasSubstr("a multiple of 16 up to 576"));
  }
}

TEST(CheckAttentionShapeTest, NamesHeadsThatDoNotDivide) {
  for (const int num_q_heads : {0, -3, 2, 4, 10}) {
    const Status status = CheckAttentionShape(Shape(64, num_q_heads, 3));
    EXPECT_EQ(status.code(), StatusCode::kUnsupported) << num_q_heads;
    EXPECT_THAT(status.message(), HasSubstr(std::to_string(num_q_heads) + " query heads over 3"));
  }
  EXPECT_FALSE(CheckAttentionShape(Shape(64, 8, 0)).ok());
  EXPECT_FALSE(CheckAttentionShape(Shape(64, 8, -2)).ok());
}

}  // namespace
}  // namespace ebb
