// `ebb serve` as a process: what it prints and how it ends. What it answers: tests/server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/cli/program.h"

namespace ebb {
namespace {

using testing::HasSubstr;
using testing::MatchesRegex;

TEST(ServeTest, SaysWhereItIsAndNothingElse) {
  const ProgramEnd end =
      RunEbb({.arguments = Words("serve -m pebble --port 0 --threads 1"), .interrupt_after = 10});
  EXPECT_EQ(end.exit_code, 0);
  EXPECT_THAT(end.out, MatchesRegex("ebb: pebble at http://127\\.0\\.0\\.1:[0-9]+\n"));
  EXPECT_EQ(end.err, "");
}

TEST(ServeTest, OptionsThatCannotBeServedEndItAtOnce) {
  ProgramEnd end = RunEbb("serve -m pebble --port 0 --t0 8MiB --t1 none --evict caps");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err,
              HasSubstr("--evict caps: which rows are evicted would depend on other requests"));
  end = RunEbb("serve -m pebble --port 0 --t0 8MiB --t1-read select");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("--t1-read: select in a server takes T0 as a share"));
  end = RunEbb("serve -m pebble --host no.such.host.invalid");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("cannot resolve the address \"no.such.host.invalid\""));
  end = RunEbb("serve -m pebble --port 70000");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("from 0 to 65535"));
  end = RunEbb("serve -m pebble --prefix-cache much");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("--prefix-cache"));
  EXPECT_THAT(end.err, HasSubstr("\"much\""));
  end = RunEbb("serve -m pebble --prefix-store 1GiB");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("--prefix-store: expected --sessions with it, found none"));
  end = RunEbb("serve -m pebble --sessions file:x --prefix-cache off --prefix-store 1GiB");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("--prefix-store: expected a --prefix-cache with it, found off"));
  end = RunEbb("serve -m pebble --sessions nowhere");
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_THAT(end.err, HasSubstr("expected file:FOLDER, redis://"));
  end = RunEbb("serve -m pebble --port 0 --sessions redis+unix:/no/such/socket");
  EXPECT_NE(end.exit_code, 0);
  EXPECT_THAT(end.err, HasSubstr("/no/such/socket: cannot reach the session store"));
  EXPECT_EQ(end.out, "");
}

}  // namespace
}  // namespace ebb
