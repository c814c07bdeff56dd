// Runs a short soak; soak_verify_test.cc runs a long one.
#include "tests/server/engine/soak.h"

namespace ebb::server {
namespace {

TEST_F(SoakTest, HundredsOfRequestsLeaveNothingBehind) { RunSoak(200); }

}  // namespace
}  // namespace ebb::server
