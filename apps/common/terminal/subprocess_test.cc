#include "apps/common/terminal/subprocess.h"

#include <csignal>
#include <filesystem>

#include "apps/common/terminal/interrupt.h"
#include "gtest/gtest.h"
#include "tests/support/temp_folder.h"

namespace ebb::cli {
namespace {

TEST(RunProcessTest, AnInterruptBetweenTwoProgramsStopsTheSecondBeforeItStarts) {
  const TempFolder folder;
  (void)InstallInterruptHandler();
  ASSERT_TRUE(RunProcess({"true"}, ProcessOutput::kDiscard).ok());
  std::raise(SIGINT);
  const auto second = RunProcess({"touch", folder.File("started")}, ProcessOutput::kDiscard);
  EXPECT_EQ(second.status().code(), StatusCode::kCancelled);
  EXPECT_FALSE(std::filesystem::exists(folder.File("started")));
  (void)InstallInterruptHandler();
  ASSERT_TRUE(RunProcess({"touch", folder.File("started")}, ProcessOutput::kDiscard).ok());
  EXPECT_TRUE(std::filesystem::exists(folder.File("started")));
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

TEST(RunProcessTest, KeepsBothOutputs) {
  const auto result = RunProcess({"sh", "-c", "echo out; echo err >&2"}, ProcessOutput::kKeepBoth);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->output, "out\nerr\n");
}

}  // namespace
}  // namespace ebb::cli
