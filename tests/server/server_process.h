// ServerProcess is a program that a test starts, signals and ends.
#ifndef EBB_TESTS_SERVER_SERVER_PROCESS_H_
#define EBB_TESTS_SERVER_SERVER_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace ebb::server {

class ServerProcess {
 public:
  // Starts a program. arguments[0] is its name, found on PATH. ReadLine() reads its stdout and
  // stderr.
  explicit ServerProcess(const std::vector<std::string>& arguments);
  // Returns the arguments to run `ebb serve` with pebble, on a free port unless `more` says
  // otherwise.
  static std::vector<std::string> Ebb(const std::vector<std::string>& more);
  // Kills the process if it runs.
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // Returns the next line that the process writes, without '\n'; empty if there are no more.
  [[nodiscard]] std::string ReadLine();
  void Signal(int signal);
  [[nodiscard]] pid_t pid() const { return pid_; }
  // Waits for the process and returns its exit code; 128 + the signal if one ended it.
  [[nodiscard]] int Wait();
  [[nodiscard]] bool HasEnded();

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  std::string unread_;
  bool ended_ = false;
  int status_ = 0;
};

// Returns whether a program of this name is on PATH.
[[nodiscard]] bool IsInstalled(const std::string& program);

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_SERVER_PROCESS_H_
