// A program that runs beside the test: started, watched, stopped, paused and killed.
#ifndef EBB_TESTS_SUPPORT_CHILD_PROCESS_H_
#define EBB_TESTS_SUPPORT_CHILD_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace ebb {

class ChildProcess {
 public:
  // arguments[0] is the program, a path or a name that PATH finds; `name` is what it is told to be
  // called, where not empty. Its stdout and stderr come together.
  explicit ChildProcess(const std::vector<std::string>& arguments, const std::string& name = "");
  // Kills it if it still runs.
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // The next line of its output, without the line break; empty where it has closed it.
  [[nodiscard]] std::string ReadLine();
  void Signal(int signal) const;
  // Sends SIGKILL and waits.
  void Kill();
  // Until it ends: its exit code, or 128 + the signal.
  int Wait();
  [[nodiscard]] bool is_running();

 private:
  pid_t pid_ = -1;
  int output_ = -1;
  std::string read_;  // behind the last line
  int code_ = -1;
};

// A folder for one test, which goes with it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Where PATH finds a program; empty: nowhere.
[[nodiscard]] std::string FindProgram(const std::string& name);

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_CHILD_PROCESS_H_
