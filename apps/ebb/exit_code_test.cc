#include "apps/ebb/exit_code.h"

#include <gtest/gtest.h>

namespace ebb::cli {
namespace {

TEST(InOptions, FieldsOfTheLibraryBecomeOptions) {
  EXPECT_EQ(InOptions("memory_bytes: policy.budget says too how much stays"),
            "--memory: --budget says too how much stays");
  EXPECT_EQ(InOptions("policy.scorer h2o: nobody asks policy.scorer"),
            "--scorer h2o: nobody asks --scorer");
  EXPECT_EQ(InOptions("a policy and its budget"), "a policy and its budget");
  EXPECT_EQ(InOptions("by TMPDIR or tiers.t1_path"), "by TMPDIR or --t1 file:FOLDER");
  EXPECT_EQ(InOptions(""), "");
}

}  // namespace
}  // namespace ebb::cli
