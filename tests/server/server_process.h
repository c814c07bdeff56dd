// A program that a test starts, signals and ends.
#ifndef EBB_TESTS_SERVER_SERVER_PROCESS_H_
#define EBB_TESTS_SERVER_SERVER_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace ebb::server {

class ServerProcess {
 public:
  // arguments[0] is the program, found on PATH. Its stdout and stderr are read by ReadLine().
  explicit ServerProcess(const std::vector<std::string>& arguments);
  // `ebb serve` of pebble, on a free port unless `more` says otherwise.
  static std::vector<std::string> Ebb(const std::vector<std::string>& more);
  // Kills it if it runs.
  ~ServerProcess();
  ServerProcess(const ServerProcess&) = delete;
  ServerProcess& operator=(const ServerProcess&) = delete;

  // The next line that it writes, without its end; empty when there is none any more.
  [[nodiscard]] std::string ReadLine();
  void Signal(int signal);
  [[nodiscard]] pid_t pid() const { return pid_; }
  // Its exit code once it has ended; 128 + the signal when one ended it.
  [[nodiscard]] int Wait();
  [[nodiscard]] bool HasEnded();

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  std::string unread_;
  bool ended_ = false;
  int status_ = 0;
};

// Whether a program of this name is on PATH.
[[nodiscard]] bool IsInstalled(const std::string& program);

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_SERVER_PROCESS_H_
