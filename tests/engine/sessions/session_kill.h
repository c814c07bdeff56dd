// A process that saves its session over and over, killed at any moment: the file holds the last
// session that was saved, or the one that was just being saved.
#ifndef EBB_TESTS_ENGINE_SESSIONS_SESSION_KILL_H_
#define EBB_TESTS_ENGINE_SESSIONS_SESSION_KILL_H_

#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>
#include <thread>

#include "tests/engine/sessions/session_fixture.h"

namespace ebb {

inline constexpr EngineTiers KillTiers() {
  return {.t1 = T1Place::kHost, .t2_type = CompressedType::kInt8};
}

inline SessionOptions KillOptions() {
  SessionOptions options;
  options.policy = {.name = "attention"};
  options.policy.tiers = TierShares{.t0_share = 0.5, .t2_share = 0.3};
  options.policy.window = 8;
  options.policy.interval = 8;
  return options;
}

// Resumes the session, then appends a token, saves, and says through the pipe how many tokens are
// saved; for ever.
[[noreturn]] inline void SaveForEver(const std::string& path, int pipe_end) {
  auto own = ResumeOwn(path, KillOptions(), KillTiers());
  if (!own.ok()) _exit(1);
  while (true) {
    if (own->session->next_position() > 400 && !own->session->TruncateTo(100).ok()) _exit(2);
    if (!own->session->Decode(7).ok()) _exit(3);
    if (!SaveSession(*own->session, path).ok()) _exit(4);
    const int32_t saved = own->session->next_position();
    if (write(pipe_end, &saved, sizeof(saved)) != sizeof(saved)) _exit(5);
  }
}

struct KillCounts {
  int found_old = 0;   // the last one that was told
  int found_new = 0;   // one that was saved and not told any more
  int in_between = 0;  // kills that left a file being written
};

// One process, killed after a random time. Adds to the counts.
inline void KillOnce(const std::string& path, std::mt19937_64* random, KillCounts* counts) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    close(ends[0]);
    SaveForEver(path, ends[1]);
  }
  close(ends[1]);
  int32_t saved = -1;
  ASSERT_EQ(read(ends[0], &saved, sizeof(saved)), static_cast<ssize_t>(sizeof(saved)));
  std::this_thread::sleep_for(std::chrono::microseconds((*random)() % 80000));
  kill(child, SIGKILL);
  while (read(ends[0], &saved, sizeof(saved)) == static_cast<ssize_t>(sizeof(saved))) {
  }
  close(ends[0]);
  int state = 0;
  waitpid(child, &state, 0);
  ASSERT_TRUE(WIFSIGNALED(state)) << WEXITSTATUS(state);
  counts->in_between += std::filesystem::exists(path + ".part") ? 1 : 0;
  const auto own = ResumeOwn(path, KillOptions(), KillTiers());
  ASSERT_TRUE(own.ok()) << own.status().ToString();
  const Position found = own->session->next_position();
  const bool is_new = found == saved + 1 || (saved > 400 && found == 101);
  ASSERT_TRUE(found == saved || is_new) << found << " tokens, " << saved << " were saved";
  ++(is_new ? counts->found_new : counts->found_old);
}

inline KillCounts KillManyTimes(int times) {
  const TempFolder folder;
  const std::string path = folder.File("session");
  {
    OwnSession own = OpenOwn(KillOptions(), KillTiers());
    ExpectOk(own.session->Prefill(SomeTokens(100)));
    for (int i = 0; i < 100; ++i) ExpectOk(own.session->Decode(5));
    ExpectOk(SaveSession(*own.session, path));
  }
  KillCounts counts;
  std::mt19937_64 random(1);
  for (int i = 0; i < times && !testing::Test::HasFailure(); ++i) {
    KillOnce(path, &random, &counts);
  }
  return counts;
}

}  // namespace ebb

#endif  // EBB_TESTS_ENGINE_SESSIONS_SESSION_KILL_H_
