#include "tests/engine/sessions/session_kill.h"

namespace ebb {
namespace {

EBB_CPU_ONLY_FILE("it kills processes that have no device");

TEST(SessionKill, AKillAtAnyMomentLeavesTheOldSessionOrTheNew) {
  const KillCounts counts = KillManyTimes(20);
  EXPECT_EQ(counts.found_old + counts.found_new, 20);
  EXPECT_GT(counts.in_between, 0);
}

}  // namespace
}  // namespace ebb
