#include "src/base/key_values.h"

#include <string>

#include <gtest/gtest.h>

namespace ebb {
namespace {

std::string RefusalOf(std::string_view text) {
  const auto parts = ParseKeyValues(text);
  EXPECT_EQ(parts.status().code(), StatusCode::kInvalidArgument) << text;
  return parts.status().message();
}

TEST(ParseKeyValues, ReturnsThePartsInTheirOrder) {
  const auto parts = ParseKeyValues("mass=0.9,rows=1024,name=a=b");
  ASSERT_TRUE(parts.ok());
  ASSERT_EQ(parts->size(), 3u);
  EXPECT_EQ((*parts)[0].key, "mass");
  EXPECT_EQ((*parts)[0].value, "0.9");
  EXPECT_EQ((*parts)[1].key, "rows");
  EXPECT_EQ((*parts)[2].value, "a=b");
}

TEST(ParseKeyValues, RefusesPartsThatAreNoPairs) {
  EXPECT_EQ(RefusalOf(""), "\"\" is not key=value");
  EXPECT_EQ(RefusalOf("mass"), "\"mass\" is not key=value");
  EXPECT_EQ(RefusalOf("=1"), "\"=1\" is not key=value");
  EXPECT_EQ(RefusalOf("mass="), "\"mass=\" is not key=value");
  EXPECT_EQ(RefusalOf("mass=1,"), "\"\" is not key=value");
  EXPECT_EQ(RefusalOf("mass=1,,rows=2"), "\"\" is not key=value");
}

TEST(ParseKeyValues, RefusesAKeyThatIsGivenTwice) {
  EXPECT_EQ(RefusalOf("mass=0.5,rows=64,mass=0.9"), "\"mass\" is given twice");
  EXPECT_EQ(RefusalOf("mass=1,mass=1"), "\"mass\" is given twice");
}

}  // namespace
}  // namespace ebb
