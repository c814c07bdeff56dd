#include "apps/common/terminal/interrupt.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <string>

namespace ebb::cli {
namespace {

struct ChildEnd {
  std::string out;
  int state = 0;
};

// Forks a child that runs `work` and exits with 7, and returns how the child ended.
template <typename Work>
ChildEnd InChild(Work work) {
  int ends[2] = {};
  EXPECT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    work();
    _exit(7);
  }
  close(ends[1]);
  ChildEnd end;
  char buffer[64];
  for (ssize_t count = 0; (count = read(ends[0], buffer, sizeof(buffer))) > 0;) {
    end.out.append(buffer, static_cast<size_t>(count));
  }
  close(ends[0]);
  waitpid(child, &end.state, 0);
  return end;
}

TEST(InterruptTest, TheFirstOneIsNoted) {
  const ChildEnd end = InChild([] {
    const auto* interrupted = InstallInterruptHandler();
    SetExitBytes("bye");
    raise(SIGINT);
    if (!*interrupted || !Interrupted()) _exit(1);
  });
  EXPECT_TRUE(WIFEXITED(end.state));
  EXPECT_EQ(WEXITSTATUS(end.state), 7);
  EXPECT_EQ(end.out, "");
}

TEST(InterruptTest, TheSecondOneSaysTheLastWordsAndKills) {
  const ChildEnd end = InChild([] {
    (void)InstallInterruptHandler();
    SetExitBytes("bye");
    raise(SIGINT);
    raise(SIGTERM);
  });
  EXPECT_TRUE(WIFSIGNALED(end.state));
  EXPECT_EQ(WTERMSIG(end.state), SIGTERM);
  EXPECT_EQ(end.out, "bye");
}

TEST(InterruptTest, AHangUpIsNotedAndOutlastsTheNextInstallation) {
  const ChildEnd end = InChild([] {
    const auto* interrupted = InstallInterruptHandler();
    raise(SIGHUP);
    if (!*interrupted || !HungUp() || !MustEnd()) _exit(1);
    (void)InstallInterruptHandler();
    if (!Interrupted()) _exit(2);
  });
  EXPECT_TRUE(WIFEXITED(end.state));
  EXPECT_EQ(WEXITSTATUS(end.state), 7);
}

TEST(InterruptTest, AHangUpThatIsIgnoredStaysIgnored) {
  const ChildEnd end = InChild([] {
    std::signal(SIGHUP, SIG_IGN);  // as nohup does
    (void)InstallInterruptHandler();
    raise(SIGHUP);
    EndOnInterrupt();
    raise(SIGHUP);
    if (Interrupted() || HungUp()) _exit(1);
  });
  EXPECT_EQ(WEXITSTATUS(end.state), 7);
}

TEST(InterruptTest, AtAPromptAHangUpEndsTheProgramWithItsCode) {
  const ChildEnd end = InChild([] {
    EndOnInterrupt();
    raise(SIGHUP);
  });
  EXPECT_TRUE(WIFEXITED(end.state));
  EXPECT_EQ(WEXITSTATUS(end.state), 129);
}

TEST(InterruptTest, EachInstallationCountsAnew) {
  const ChildEnd end = InChild([] {
    (void)InstallInterruptHandler();
    raise(SIGINT);
    (void)InstallInterruptHandler();
    if (Interrupted()) _exit(1);
    raise(SIGINT);
  });
  EXPECT_EQ(WEXITSTATUS(end.state), 7);
}

TEST(InterruptTest, AConversationOutlivesTheSecondCtrlCButNotATermination) {
  const auto interrupt_twice = [] {
    KeepOnInterrupt();
    (void)InstallInterruptHandler();
    raise(SIGINT);
    raise(SIGINT);
    if (!Interrupted() || MustEnd()) _exit(1);
  };
  ChildEnd end = InChild(interrupt_twice);
  EXPECT_TRUE(WIFEXITED(end.state));
  EXPECT_EQ(WEXITSTATUS(end.state), 7);
  end = InChild([&] {
    interrupt_twice();
    raise(SIGTERM);
  });
  EXPECT_TRUE(WIFSIGNALED(end.state));
}

TEST(InterruptTest, TheFirstCtrlCPrintsTheTextOfWorkThatStopsLater) {
  const ChildEnd end = InChild([] {
    dup2(STDOUT_FILENO, STDERR_FILENO);
    (void)InstallInterruptHandler();
    SetInterruptText("stopping soon");
    raise(SIGINT);
  });
  EXPECT_EQ(end.out, "stopping soon");
}

}  // namespace
}  // namespace ebb::cli
