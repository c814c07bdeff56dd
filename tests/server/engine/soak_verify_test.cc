#include "tests/server/engine/soak.h"

namespace ebb::server {
namespace {

TEST_F(SoakTest, TenThousandRequestsLeaveNothingBehind) { RunSoak(10'000); }

}  // namespace
}  // namespace ebb::server
