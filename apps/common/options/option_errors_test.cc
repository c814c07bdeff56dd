#include "apps/common/options/option_errors.h"

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
  GivenOptions draft;
  ASSERT_TRUE(draft.Add("--draft", "select:rows=1").ok());
  EXPECT_EQ(TextWithOption(few, draft), "--draft select:rows: is 1: expected 0 or at least 384");
  EXPECT_EQ(TextWithOption(InvalidArgument("threads", "expected 1"), draft),
            "--threads: expected 1");
}

TEST(TextWithOption, NamesTheOptionThatCompressesOldRows) {
  const Status refused = InvalidArgument("tiers.t2_rows", "cannot be combined with eviction");
  GivenOptions given;
  EXPECT_EQ(TextWithOption(refused, given), "--t2 old: cannot be combined with eviction");
  ASSERT_TRUE(given.Add("--t2", "old:int4").ok());
  EXPECT_EQ(TextWithOption(refused, given), "--t2 old: cannot be combined with eviction");
  given = {};
  ASSERT_TRUE(given.Add("--kv-type", "q4").ok());
  EXPECT_EQ(TextWithOption(refused, given), "--kv-type q4: cannot be combined with eviction");
}

TEST(TextWithOption, NamesTheWayOutOfATooLongContext) {
  EXPECT_EQ(
      TextWithOption(InvalidArgument("context", "9 tokens")),
      "--context: 9 tokens (--rope-scaling yarn --rope-factor X, or --past-context rerotate; leave "
      "it out for what the model was trained for)");
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
