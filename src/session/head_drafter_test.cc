#include "src/session/head_drafter.h"

#include <gmock/gmock.h>

namespace ebb {
namespace {

using testing::ElementsAre;

TEST(HeadRows, AreThoseOfConsecutiveTokens) {
  HeadRows rows(2);
  const std::vector<float> three = {1, 1, 2, 2, 3, 3};
  rows.Append(10, three);
  EXPECT_EQ(rows.begin(), 10);
  EXPECT_EQ(rows.end(), 13);
  EXPECT_THAT(rows.Copy(9, 3), ElementsAre(0, 0, 1, 1, 2, 2)) << "zeros for missing rows";
  EXPECT_THAT(rows.Copy(12, 2), ElementsAre(3, 3, 0, 0));
  rows.Append(12, std::vector<float>{7, 7});
  EXPECT_THAT(rows.Copy(11, 2), ElementsAre(2, 2, 7, 7)) << "a row in place of another";
  rows.DropBefore(12);
  EXPECT_EQ(rows.begin(), 12);
  EXPECT_THAT(rows.Copy(11, 2), ElementsAre(0, 0, 7, 7));
  rows.TruncateTo(5);
  EXPECT_EQ(rows.begin(), rows.end());
  rows.Append(5, std::vector<float>{4, 4});
  EXPECT_THAT(rows.Copy(5, 1), ElementsAre(4, 4));
  rows.Append(8, std::vector<float>{8, 8});
  EXPECT_EQ(rows.begin(), 8) << "rows before a gap are dropped";
  EXPECT_THAT(rows.Copy(5, 4), ElementsAre(0, 0, 0, 0, 0, 0, 8, 8));
}

}  // namespace
}  // namespace ebb
