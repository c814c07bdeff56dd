#include "tests/server/server_process.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <sstream>

namespace ebb::server {

std::vector<std::string> ServerProcess::Ebb(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {
      EBB_BINARY_PATH, "serve", "-m", "pebble", "--dequantize", "--threads", "1", "--port", "0"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

ServerProcess::ServerProcess(const std::vector<std::string>& arguments) {
  int ends[2] = {};
  if (pipe2(ends, O_CLOEXEC) != 0) std::abort();
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    execvp(argv[0], argv.data());
    _exit(127);
  }
  close(ends[1]);
  output_ = ends[0];
}

ServerProcess::~ServerProcess() {
  if (!ended_) {
    kill(pid_, SIGKILL);
    (void)Wait();
  }
  close(output_);
}

std::string ServerProcess::ReadLine() {
  while (unread_.find('\n') == std::string::npos) {
    char block[512];
    const ssize_t size = read(output_, block, sizeof(block));
    if (size <= 0) return "";
    unread_.append(block, static_cast<size_t>(size));
  }
  const std::string line = unread_.substr(0, unread_.find('\n'));
  unread_.erase(0, line.size() + 1);
  return line;
}

void ServerProcess::Signal(int signal) { kill(pid_, signal); }

int ServerProcess::Wait() {
  if (!ended_) waitpid(pid_, &status_, 0);
  ended_ = true;
  return WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
}

bool ServerProcess::HasEnded() {
  if (!ended_) ended_ = waitpid(pid_, &status_, WNOHANG) == pid_;
  return ended_;
}

bool IsInstalled(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path == nullptr ? "" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    if (access((std::filesystem::path(folder) / program).c_str(), X_OK) == 0) return true;
  }
  return false;
}

}  // namespace ebb::server
