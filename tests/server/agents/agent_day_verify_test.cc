// Runs five hundred turns of a day of coding agents.
#include <fmt/ranges.h>

#include "tests/server/agents/agent_day_fixture.h"

namespace ebb::server {
namespace {

TEST_F(AgentDayTest, FiveHundredTurnsUnderPressureGrowNothingAndShareTheirPrompts) {
  // T0 has room for two of the three prompts, once they are long.
  ASSERT_NO_FATAL_FAILURE(
      Start({"--t0", "6MiB", "--t1", "file:" + folder_.File(""), "--prefix-cache", "128MiB"}));
  RunDay(500, 10, 0, {});
  ExpectShared();
  for (const int count : {counts_.hang_ups, counts_.pictures, counts_.cut_calls,
                          counts_.lone_surrogates, counts_.edits, counts_.summaries}) {
    EXPECT_GT(count, 0);
  }
  EXPECT_GT(server_->Metric("ebb_parks_total"), 0);
  // In the first hours, everything with a cap fills up.
  const size_t filled = *std::max_element(memory_.begin(), memory_.begin() + 5);
  EXPECT_LE(memory_.back(), filled + (size_t{16} << 20)) << fmt::format("{}", memory_);
}

TEST_F(AgentDayTest, AResultOf200KilobytesIsReadOnce) {
  ASSERT_NO_FATAL_FAILURE(
      Start({"--t0", "18MiB", "--t1", "file:" + folder_.File(""), "--prefix-cache", "128MiB"}));
  RunDay(30, 2, 1, {});
  ExpectShared();
  EXPECT_EQ(counts_.huge_results, 1);
}

}  // namespace
}  // namespace ebb::server
