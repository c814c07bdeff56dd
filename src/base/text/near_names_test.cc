#include "src/base/text/near_names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ebb {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

TEST(NearNamesTest, NeedTheFewestEdits) {
  EXPECT_THAT(NearNames("tide-q4.gguf", {"ebb.gguf", "TIDE-Q4_0.gguf", "tide-Q5.gguf"}, 2),
              ElementsAre("tide-Q5.gguf", "TIDE-Q4_0.gguf"));
  EXPECT_THAT(NearNames("a", {}, 3), IsEmpty());
}

TEST(NearNamesTest, AreLikelyMeantAtTwoEditsAndAThirdOfTheLetters) {
  EXPECT_EQ(LikelyMeant("rnu", {"run", "rm"}), "run");  // letters that were swapped are one edit
  EXPECT_EQ(LikelyMeant("--promt", {"--prompt", "--port"}), "--prompt");
  EXPECT_EQ(LikelyMeant("fly", {"run", "rm", "fit"}), std::nullopt);
  EXPECT_EQ(LikelyMeant("a", {}), std::nullopt);
}

}  // namespace
}  // namespace ebb
