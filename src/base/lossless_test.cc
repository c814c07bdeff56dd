#include "ebb/lossless.h"

#include <gtest/gtest.h>

namespace ebb {
namespace {

TEST(LosslessReport, WhatWasDoneSinceIsEachFieldsDifference) {
  const LosslessReport before = {.drafted = 1,
                                 .accepted = 2,
                                 .looked_up = 3,
                                 .accepted_looked_up = 4,
                                 .verify_steps = 5,
                                 .bytes_read = 6,
                                 .rows_read = 7,
                                 .draft_seconds = 8,
                                 .verify_seconds = 9,
                                 .wait_seconds = 10};
  const LosslessReport now = {.drafted = 11,
                              .accepted = 22,
                              .looked_up = 33,
                              .accepted_looked_up = 44,
                              .verify_steps = 55,
                              .bytes_read = 66,
                              .rows_read = 77,
                              .draft_seconds = 88,
                              .verify_seconds = 99,
                              .wait_seconds = 110};
  const LosslessReport since = Since(before, now);
  EXPECT_EQ(since.drafted, 10);
  EXPECT_EQ(since.accepted, 20);
  EXPECT_EQ(since.looked_up, 30);
  EXPECT_EQ(since.accepted_looked_up, 40);
  EXPECT_EQ(since.verify_steps, 50);
  EXPECT_EQ(since.bytes_read, 60U);
  EXPECT_EQ(since.rows_read, 70);
  EXPECT_EQ(since.draft_seconds, 80);
  EXPECT_EQ(since.verify_seconds, 90);
  EXPECT_EQ(since.wait_seconds, 100);
}

}  // namespace
}  // namespace ebb
