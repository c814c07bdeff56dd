#include "src/model/family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace ebb {
namespace {

using testing::HasSubstr;

TEST(FamilyTest, EveryFamilyIsFoundByItsName) {
  for (const ModelFamily& family : ModelFamilies()) {
    const auto found = FindModelFamily(family.name);
    ASSERT_TRUE(found.ok()) << family.name;
    EXPECT_EQ(*found, &family);
  }
}

TEST(FamilyTest, AnUnknownFamilyIsRefusedWithTheListOfTheKnown) {
  const Status status = FindModelFamily("mamba").status();
  EXPECT_EQ(status.code(), StatusCode::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("\"mamba\""));
  for (const ModelFamily& family : ModelFamilies()) {
    EXPECT_THAT(status.message(), HasSubstr(std::string(family.name)));
  }
}

}  // namespace
}  // namespace ebb
