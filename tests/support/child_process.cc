#include "tests/support/child_process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <utility>

namespace ebb {

ChildProcess::ChildProcess(const std::vector<std::string>& arguments, const std::string& name) {
  int ends[2] = {-1, -1};
  if (pipe2(ends, O_CLOEXEC) != 0) return;
  std::vector<std::string> words = arguments;
  if (!name.empty()) words[0] = name;
  std::vector<char*> pointers;
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  pid_ = fork();
  if (pid_ == 0) {
    // It must not outlive a test that is killed.
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(ends[1], 1);
    dup2(ends[1], 2);
    execvp(arguments[0].c_str(), pointers.data());
    _exit(127);
  }
  close(ends[1]);
  output_ = ends[0];
}

ChildProcess::~ChildProcess() {
  Kill();
  if (output_ >= 0) close(output_);
}

std::string ChildProcess::ReadLine() {
  while (true) {
    if (const size_t end = read_.find('\n'); end != std::string::npos) {
      std::string line = read_.substr(0, end);
      read_.erase(0, end + 1);
      return line;
    }
    char buffer[4096];
    const ssize_t size = read(output_, buffer, sizeof(buffer));
    if (size < 0 && errno == EINTR) continue;
    if (size <= 0) return std::exchange(read_, {});
    read_.append(buffer, static_cast<size_t>(size));
  }
}

void ChildProcess::Signal(int signal) const {
  if (pid_ > 0) kill(pid_, signal);
}

void ChildProcess::Kill() {
  Signal(SIGKILL);
  Wait();
}

int ChildProcess::Wait() {
  if (pid_ <= 0) return code_;
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
  return code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool ChildProcess::is_running() {
  if (pid_ <= 0) return false;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) == 0) return true;
  pid_ = -1;
  code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return false;
}

TemporaryFolder::TemporaryFolder() {
  std::string path = (std::filesystem::temp_directory_path() / "ebb-test-XXXXXX").string();
  if (mkdtemp(path.data()) != nullptr) path_ = path;
}
TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
}

std::string FindProgram(const std::string& name) {
  const char* const path = std::getenv("PATH");
  std::istringstream folders(path != nullptr ? std::string(path) + ":/usr/sbin" : "/usr/sbin");
  for (std::string folder; std::getline(folders, folder, ':');) {
    const std::string file = folder + "/" + name;
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

}  // namespace ebb
