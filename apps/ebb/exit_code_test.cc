#include "apps/ebb/exit_code.h"

#include <gtest/gtest.h>

namespace ebb::cli {
namespace {

TEST(TextWithOption, NamesTheOptionInPlaceOfTheField) {
  EXPECT_EQ(TextWithOption(InvalidArgument("memory_bytes", "expected less")),
            "--memory: expected less");
  EXPECT_EQ(TextWithOption(InvalidArgument("kv_cap_bytes", "expected less")),
            "--kv-cap: expected less");
  EXPECT_EQ(TextWithOption(InvalidArgument("policy.budget", "expected none")),
            "--budget: expected none");
  EXPECT_EQ(TextWithOption(InvalidArgument("policy.scorer", "expected none")),
            "--scorer: expected none");
  EXPECT_EQ(TextWithOption(InvalidArgument("threads", "expected 1")), "--threads: expected 1");
  EXPECT_EQ(TextWithOption(InvalidArgument("tiers.evict_beyond_caps", "expected none")),
            "--evict caps: expected none");
  EXPECT_EQ(TextWithOption(Status(StatusCode::kIo, "tiers.t1_path", "no such folder")),
            "--t1 file:FOLDER: no such folder");
}

TEST(TextWithOption, NamesTheOptionThatSaysWhichRowsAreRead) {
  const Status few = InvalidArgument("tiers.t1_rows", "is 1: expected 0 or at least 384");
  EXPECT_EQ(TextWithOption(few), "--t1-read select:rows: is 1: expected 0 or at least 384");
  EXPECT_EQ(TextWithOption(few, "--draft"),
            "--draft select:rows: is 1: expected 0 or at least 384");
  EXPECT_EQ(TextWithOption(InvalidArgument("threads", "expected 1"), "--draft"),
            "--threads: expected 1");
}

TEST(TextWithOption, NamesTheWayOutOfATooLongContext) {
  EXPECT_EQ(TextWithOption(InvalidArgument("context", "9 tokens")),
            "--context: 9 tokens (--rope-scaling yarn --rope-factor X, --past-context rerotate)");
}

TEST(AsUsage, AFileThatCannotBeReadIsAnErrorOfTheOption) {
  const Status denied = AsUsage(Status(StatusCode::kIo, "model", "keys: permission denied"));
  EXPECT_EQ(denied.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(denied.field(), "model");
  EXPECT_EQ(denied.message(), "keys: permission denied");
  EXPECT_EQ(AsUsage(OutOfMemory("none")).code(), StatusCode::kOutOfMemory);
  EXPECT_TRUE(AsUsage(OkStatus()).ok());
}

TEST(TextWithOption, LeavesOtherFieldsAndMessagesAsTheyAre) {
  EXPECT_EQ(TextWithOption(InvalidArgument("messages[0].role", "expected user")),
            "messages[0].role: expected user");
  EXPECT_EQ(TextWithOption(InvalidArgument("memory_bytes and policy.budget are words here")),
            "memory_bytes and policy.budget are words here");
}

}  // namespace
}  // namespace ebb::cli
