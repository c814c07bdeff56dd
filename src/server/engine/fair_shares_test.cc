#include "src/server/engine/fair_shares.h"

#include <gtest/gtest.h>

namespace ebb::server {
namespace {

TEST(FairShares, WorkCountsWhileSomebodyWaits) {
  FairShares shares;
  shares.Charge(1, 5);
  EXPECT_EQ(shares.served(1), 0);
  shares.SetWaiting({2});
  shares.Charge(1, 5);
  shares.Charge(2, 1);
  shares.Charge(1, 5);
  EXPECT_EQ(shares.served(1), 10);
  EXPECT_EQ(shares.served(2), 1);
  EXPECT_EQ(shares.served(3), 0);
}

TEST(FairShares, WhoComesLaterStartsLevelWithWhoHadLeast) {
  FairShares shares;
  shares.SetWaiting({1, 2});
  shares.Charge(1, 100);
  shares.Charge(2, 60);
  shares.SetWaiting({1, 2, 3});
  EXPECT_EQ(shares.served(3), 60);
}

TEST(FairShares, WhoHadMoreAndComesBackHasItStill) {
  FairShares shares;
  shares.SetWaiting({1, 2});
  shares.Charge(1, 100);
  shares.SetWaiting({2});
  shares.Charge(2, 10);
  shares.SetWaiting({1, 2});
  EXPECT_EQ(shares.served(1), 100);
  EXPECT_EQ(shares.served(2), 10);
}

TEST(FairShares, OnceNobodyWaitsAllStartAnew) {
  FairShares shares;
  shares.SetWaiting({1, 2});
  shares.Charge(1, 100);
  shares.SetWaiting({});
  EXPECT_EQ(shares.served(1), 0);
  shares.SetWaiting({2});
  shares.Charge(2, 3);
  // Other owners wait now than before, so that all sums restart.
  shares.SetWaiting({1});
  EXPECT_EQ(shares.served(2), 0);
}

TEST(FairShares, ATokenThatReadsManyRowsCostsMore) {
  EXPECT_DOUBLE_EQ(CostOf(0, 1000), 0);
  EXPECT_DOUBLE_EQ(CostOf(1, 4096 - 0.5), 2);
  EXPECT_GT(CostOf(10, 4096), 2 * CostOf(10, 0) * 0.99);
  // Reading a prompt in two chunks costs the same as reading it at once.
  EXPECT_DOUBLE_EQ(CostOf(100, 50), CostOf(40, 50) + CostOf(60, 90));
}

}  // namespace
}  // namespace ebb::server
