#include "src/io/benchmark_io.h"

#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/io/page_file_for_test.h"
#include "tests/support/skip.h"
#include "tests/support/temp_folder.h"

namespace ebb {
namespace {

using ::testing::HasSubstr;

class ReadBenchmarkTest : public testing::TestWithParam<IoEngine> {};

INSTANTIATE_TEST_SUITE_P(Engines, ReadBenchmarkTest,
                         testing::Values(IoEngine::kUring, IoEngine::kThreads), EngineName);

TEST_P(ReadBenchmarkTest, ReadsTheWholeFileAndFindsWhatItWrote) {
  const TempFolder folder;
  const PageFileOptions same = {
      .folder = folder.File(""), .page_bytes = 4096, .engine = GetParam()};
  if (const std::string reason = WhyNot(same); !reason.empty())
    EBB_SKIP_WITHOUT("direct_io") << reason;
  for (const int depth : {1, 3, 32}) {
    const auto benchmark = ReadBenchmark::Create({.folder = folder.File(""),
                                                  .file_bytes = (4 << 20) + 1,
                                                  .request_bytes = 256 << 10,
                                                  .engine = GetParam(),
                                                  .queue_depth = depth});
    ASSERT_TRUE(benchmark.ok()) << benchmark.status().ToString();
    EXPECT_EQ((*benchmark)->engine(), GetParam());
    for (int pass = 0; pass < 2; ++pass) {
      const auto speed = (*benchmark)->Run();
      ASSERT_TRUE(speed.ok()) << speed.status().ToString();
      EXPECT_EQ(speed->num_bytes, size_t{17} * (256 << 10));
      EXPECT_GT(speed->seconds, 0);
      EXPECT_GE(speed->cpu_seconds, 0);
      EXPECT_GT(speed->GigabytesPerSecond(), 0);
    }
    EXPECT_TRUE(std::filesystem::is_empty(folder.File("")));
  }
}

TEST(ReadBenchmarkOptionsTest, RequestsThatAreNoBlocksAreRefused) {
  for (const size_t request_bytes : {size_t{0}, size_t{1000}}) {
    const auto benchmark = ReadBenchmark::Create({.request_bytes = request_bytes});
    ASSERT_FALSE(benchmark.ok());
    EXPECT_EQ(benchmark.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(benchmark.status().message(), HasSubstr("multiple of 4096"));
  }
}

}  // namespace
}  // namespace ebb
