#include "apps/ebb/serve/passed_sockets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ebb::cli {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr pid_t kOwn = 4711;

TEST(PassedSocketsTest, AreDescriptorsFromThreeOn) {
  const auto sockets = ReadPassedSockets("4711", "2", kOwn);
  ASSERT_TRUE(sockets.ok()) << sockets.status().ToString();
  EXPECT_THAT(sockets->descriptors, ElementsAre(3, 4));
  EXPECT_EQ(sockets->ignored, "");
}

TEST(PassedSocketsTest, WithoutTheVariableThereAreNone) {
  for (const char* process : {static_cast<const char*>(nullptr), "4711"}) {
    const auto sockets = ReadPassedSockets(process, nullptr, kOwn);
    ASSERT_TRUE(sockets.ok());
    EXPECT_THAT(sockets->descriptors, IsEmpty());
    EXPECT_EQ(sockets->ignored, "");
  }
}

TEST(PassedSocketsTest, ThoseOfAnotherProcessAreIgnoredWithAReason) {
  auto sockets = ReadPassedSockets("12", "1", kOwn);
  ASSERT_TRUE(sockets.ok());
  EXPECT_THAT(sockets->descriptors, IsEmpty());
  EXPECT_EQ(sockets->ignored,
            "LISTEN_FDS is ignored: LISTEN_PID says that it is for process 12, and this is process "
            "4711");
  sockets = ReadPassedSockets(nullptr, "1", kOwn);
  ASSERT_TRUE(sockets.ok());
  EXPECT_THAT(sockets->descriptors, IsEmpty());
  EXPECT_THAT(sockets->ignored, HasSubstr("LISTEN_PID, the process that it is for, is not set"));
}

TEST(PassedSocketsTest, ValuesThatAreNoNumbersAreErrors) {
  for (const char* number : {"abc", "", "0", "-1", "65", "1x", " 1", "99999999999"}) {
    const auto sockets = ReadPassedSockets("4711", number, kOwn);
    ASSERT_EQ(sockets.status().code(), StatusCode::kInvalidArgument) << number;
    EXPECT_EQ(sockets.status().message(),
              "the environment variable LISTEN_FDS: expected a number from 1 to 64, found \"" +
                  std::string(number) + "\"");
  }
  const auto sockets = ReadPassedSockets("me", "1", kOwn);
  EXPECT_EQ(sockets.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(sockets.status().message(), HasSubstr("LISTEN_PID: expected a number"));
}

}  // namespace
}  // namespace ebb::cli
