// Runs the programs as a user's shell would, with pipes for their three streams.
#ifndef EBB_TESTS_CLI_PROGRAM_H_
#define EBB_TESTS_CLI_PROGRAM_H_

#include <csignal>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ebb {

struct ProgramRun {
  // Without the program `ebb` itself. A first one of ebb-lab or ebb-bench names that program.
  std::vector<std::string> arguments;
  std::string input;                                             // all of stdin
  std::vector<std::pair<std::string, std::string>> environment;  // added to that of the test
  // Once stdout has brought so many bytes: close it, or interfere (once), by a signal or as said.
  std::optional<size_t> close_stdout_after;
  std::optional<size_t> interrupt_after;
  int signal = SIGINT;
  std::function<void()> interfere = {};  // instead of the signal
};

struct ProgramEnd {
  int exit_code = -1;  // 128 + the signal when one ended it; -1: it had to be killed for its time
  std::string out;
  std::string err;
};

ProgramEnd RunEbb(const ProgramRun& run);
// Arguments separated by blanks.
ProgramEnd RunEbb(const std::string& arguments);

// Returns the arguments after the path of the program that they are for.
std::vector<std::string> WithProgram(std::vector<std::string> arguments);

std::vector<std::string> Words(const std::string& text);
// Without its line break.
std::string LastLine(const std::string& text);

}  // namespace ebb

#endif  // EBB_TESTS_CLI_PROGRAM_H_
