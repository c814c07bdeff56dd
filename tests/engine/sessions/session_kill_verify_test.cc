#include "tests/engine/sessions/session_kill.h"

namespace ebb {
namespace {

TEST(SessionKill, TwoHundredAndFiftyKillsLeaveNoBrokenSession) {
  const KillCounts counts = KillManyTimes(250);
  EXPECT_EQ(counts.found_old + counts.found_new, 250);
  EXPECT_GT(counts.in_between, 25);
  RecordProperty("found_old", counts.found_old);
  RecordProperty("found_new", counts.found_new);
  RecordProperty("in_between", counts.in_between);
}

}  // namespace
}  // namespace ebb
