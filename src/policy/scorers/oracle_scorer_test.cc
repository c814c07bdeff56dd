#include <limits>

#include "ebb/policy.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "src/policy/scorers.h"

namespace ebb {
namespace {

using ::testing::ElementsAre;

// The row at position p in group g has 100 g + p left; position 7 is unknown.
class Numbered final : public Foresight {
 public:
  void AttentionLeft(int group, std::span<const Position> positions,
                     std::span<float> left) const override {
    for (size_t i = 0; i < positions.size(); ++i) {
      left[i] = positions[i] == 7 ? std::numeric_limits<float>::quiet_NaN()
                                  : static_cast<float>(100 * group + positions[i]);
    }
  }
};

TEST(OracleScorer, AScoreIsWhatTheForesightSaysOfTheRowsThatAreLeft) {
  const Numbered foresight;
  const std::unique_ptr<Scorer> scorer = MakeOracleScorer(
      {.shape = {.num_layers = 2}, .granularity = Granularity::kLayer, .foresight = &foresight});
  EXPECT_EQ(scorer->Name(), "oracle");
  EXPECT_TRUE(scorer->Needs().Empty());
  scorer->Append(1, std::vector<Position>{0, 1, 2});
  scorer->Append(1, std::vector<Position>{6, 7});
  EXPECT_THAT(scorer->Scores(1), ElementsAre(100, 101, 102, 106, 0));
  scorer->Retain(1, std::vector<uint32_t>{0, 2, 4});
  scorer->Append(1, std::vector<Position>{8});
  EXPECT_THAT(scorer->Scores(1), ElementsAre(100, 102, 0, 108));
  EXPECT_TRUE(scorer->Scores(0).empty());
}

}  // namespace
}  // namespace ebb
