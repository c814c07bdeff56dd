// Runs other programs, found on PATH, without a shell.
#ifndef EBB_APPS_TERMINAL_SUBPROCESS_H_
#define EBB_APPS_TERMINAL_SUBPROCESS_H_

#include <string>
#include <vector>

#include "ebb/status.h"

namespace ebb::cli {

// ProcessResult describes the end of a child process.
struct ProcessResult {
  int exit_code = 0;   // 128 + the signal when one ended it
  std::string output;  // the child's output, if it was kept
};

enum class ProcessOutput {
  kToStderr,   // its stdout is joined with our stderr: progress, messages
  kKeep,       // its stdout is returned
  kKeepAlone,  // the same, and its stderr is dropped
  kKeepBoth,   // its stdout and stderr are returned together
  kDiscard,    // both its stdout and its stderr are dropped
};

// Runs a program, arguments[0], with an empty stdin and returns once it has ended. Errors: the
// program cannot be started; kCancelled if a signal interrupted this process since the caller's
// InstallInterruptHandler(): either before the call, and nothing is started, or during it, and the
// child was interrupted too and has ended.
[[nodiscard]] Result<ProcessResult> RunProcess(const std::vector<std::string>& arguments,
                                               ProcessOutput output);

}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_SUBPROCESS_H_
