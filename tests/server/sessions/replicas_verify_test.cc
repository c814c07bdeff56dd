// Runs more kills than the default tests have time for.
#include "tests/server/sessions/replica_chaos.h"

namespace ebb::server {
namespace {

TEST_P(ReplicaChaosTest, ManyKillsLoseNothingAndAnswerNothingTwice) { RunRounds(200, 2); }

INSTANTIATE_TEST_SUITE_P(Every, ReplicaChaosTest, testing::Values(Place::kFile, Place::kRedis),
                         PlaceName);

}  // namespace
}  // namespace ebb::server
