#include "apps/common/terminal/interrupt.h"

#include <csignal>
#include <cstdlib>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace ebb::cli {
namespace {

void InterruptTwice() {
  (void)InstallInterruptHandler();
  SetInterruptText("stopping soon");
  raise(SIGINT);
  raise(SIGINT);
  std::_Exit(Interrupted() ? 7 : 1);
}

TEST(InterruptDeathTest, TheSecondEndsTheProcess) {
  EXPECT_EXIT(InterruptTwice(), testing::KilledBySignal(SIGINT), "stopping soon");
}

TEST(InterruptDeathTest, AConversationOutlivesTheSecond) {
  const auto talk = [] {
    KeepOnInterrupt();
    InterruptTwice();
  };
  EXPECT_EXIT(talk(), testing::ExitedWithCode(7), "stopping soon");
}

}  // namespace
}  // namespace ebb::cli
