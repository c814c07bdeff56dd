// `ebb serve` as a process: what it prints and how it ends. What it answers: tests/server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "tests/cli/program.h"
#include "tests/support/temp_folder.h"

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

TEST(ServeTest, OptionsComeFromAFileToo) {
  const TempFolder folder;
  const std::string file = folder.File("serve.toml");
  std::ofstream(file) << "model = 'pebble'\nport = 70000\n";
  ProgramEnd end = RunEbb({.arguments = {"serve", "--config", file}});
  EXPECT_EQ(end.exit_code, 2);
  EXPECT_EQ(end.err, "ebb: " + file + ":2: port: expected an integer from 0 to 65535, found " +
                         "\"70000\"\n");
  std::ofstream(file) << "model = 'pebble'\nport = 1\nthreads = 1\nhost = '127.0.0.2'\n";
  end = RunEbb({.arguments = {"serve", "--port", "0", "--config", file}, .interrupt_after = 10});
  EXPECT_EQ(end.exit_code, 0) << end.err;
  EXPECT_THAT(end.out, MatchesRegex("ebb: pebble at http://127\\.0\\.0\\.2:[0-9]+\n"));
  end = RunEbb({.arguments = {"serve", "--config", folder.File("none")}});
  EXPECT_EQ(end.exit_code, 1);
  EXPECT_THAT(end.err, HasSubstr("--config: cannot read"));
}

}  // namespace
}  // namespace ebb
