#include "apps/common/terminal/subprocess.h"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "apps/common/terminal/interrupt.h"

extern char** environ;

namespace ebb::cli {
namespace {

constexpr int kPollMs = 200;

// SpawnActions holds the settings of posix_spawn() and releases them at the end of the scope.
class SpawnActions {
 public:
  SpawnActions(ProcessOutput output, int write_end) {
    posix_spawn_file_actions_init(&actions_);
    posix_spawn_file_actions_addopen(&actions_, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    switch (output) {
      case ProcessOutput::kToStderr:
        posix_spawn_file_actions_adddup2(&actions_, STDERR_FILENO, STDOUT_FILENO);
        break;
      case ProcessOutput::kKeep:
        posix_spawn_file_actions_adddup2(&actions_, write_end, STDOUT_FILENO);
        break;
      case ProcessOutput::kKeepAlone:
        posix_spawn_file_actions_adddup2(&actions_, write_end, STDOUT_FILENO);
        posix_spawn_file_actions_addopen(&actions_, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
        break;
      case ProcessOutput::kKeepBoth:
        posix_spawn_file_actions_adddup2(&actions_, write_end, STDOUT_FILENO);
        posix_spawn_file_actions_adddup2(&actions_, write_end, STDERR_FILENO);
        break;
      case ProcessOutput::kDiscard:
        posix_spawn_file_actions_addopen(&actions_, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
        posix_spawn_file_actions_adddup2(&actions_, STDOUT_FILENO, STDERR_FILENO);
        break;
    }
    // A child inherits ignored signals. SIGPIPE gets its default back, so that python dies of a
    // closed pipe.
    sigset_t defaults;
    sigemptyset(&defaults);
    sigaddset(&defaults, SIGPIPE);
    posix_spawnattr_init(&attributes_);
    posix_spawnattr_setsigdefault(&attributes_, &defaults);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGDEF);
  }
  ~SpawnActions() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnActions(const SpawnActions&) = delete;
  SpawnActions& operator=(const SpawnActions&) = delete;

  int Spawn(const std::vector<std::string>& arguments, pid_t* child) const {
    std::vector<char*> raw(arguments.size() + 1, nullptr);
    for (size_t i = 0; i < arguments.size(); ++i) raw[i] = const_cast<char*>(arguments[i].c_str());
    return posix_spawnp(child, raw[0], &actions_, &attributes_, raw.data(), environ);
  }

 private:
  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
};

// Returns the child's output up to its end. Passes an interruption of this process on to the child
// once, since the signal may have come to this process alone.
std::string ReadToEnd(int file, pid_t child) {
  std::string text;
  char buffer[4096];
  bool was_told = false;
  while (true) {
    if (Interrupted() && !std::exchange(was_told, true)) kill(child, SIGINT);
    // A signal that comes just before poll() does not end it, so poll() ends by itself after
    // kPollMs.
    pollfd wanted = {.fd = file, .events = POLLIN, .revents = 0};
    const int ready = poll(&wanted, 1, kPollMs);
    if (ready == 0 || (ready < 0 && errno == EINTR)) continue;
    const ssize_t count = read(file, buffer, sizeof(buffer));
    if (count > 0) {
      text.append(buffer, static_cast<size_t>(count));
    } else if (count == 0 || errno != EINTR) {
      return text;
    }
  }
}

// Waits for the end of a child that has closed its output, and stores its exit code.
void WaitFor(pid_t child, ProcessResult* result) {
  int state = 0;
  bool was_told = false;
  pid_t ended = 0;
  while ((ended = waitpid(child, &state, WNOHANG)) == 0 || (ended < 0 && errno == EINTR)) {
    if (Interrupted() && !std::exchange(was_told, true)) kill(child, SIGINT);
    if (ended == 0) poll(nullptr, 0, 10);
  }
  result->exit_code = WIFSIGNALED(state) ? 128 + WTERMSIG(state) : WEXITSTATUS(state);
}

}  // namespace

Result<ProcessResult> RunProcess(const std::vector<std::string>& arguments, ProcessOutput output) {
  if (Interrupted()) return Cancelled("interrupted");
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return IoError(fmt::format("cannot make a pipe: {}", std::strerror(errno)));
  }
  pid_t child = 0;
  const int error = SpawnActions(output, ends[1]).Spawn(arguments, &child);
  close(ends[1]);
  ProcessResult result;
  if (error == 0) {
    result.output = ReadToEnd(ends[0], child);
    WaitFor(child, &result);
  }
  close(ends[0]);
  if (error != 0) {
    return NotFound(fmt::format("cannot run {}: {}", arguments[0], std::strerror(error)));
  }
  if (Interrupted()) return Cancelled("interrupted");
  return result;
}

}  // namespace ebb::cli
