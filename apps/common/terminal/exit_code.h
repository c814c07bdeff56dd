// Defines the exit codes of the programs.
#ifndef EBB_APPS_TERMINAL_EXIT_CODE_H_
#define EBB_APPS_TERMINAL_EXIT_CODE_H_

#include <span>
#include <string_view>

#include "ebb/status.h"

namespace ebb::cli {

enum class ExitCode {
  kOk = 0,
  kError = 1,         // the system, the network, a disk; stdout was closed: it may pass
  kUsage = 2,         // the command line, or something that it names: it fails again
  kLimit = 3,         // the context or a memory cap was reached
  kHungUp = 129,      // SIGHUP: the terminal is gone
  kInterrupted = 130  // Ctrl-C, or SIGTERM
};

struct ExitCodeInfo {
  ExitCode code;
  std::string_view meaning;
};
[[nodiscard]] std::span<const ExitCodeInfo> ExitCodes();

// Returns the exit code of an error. kInvalidArgument, kNotFound, kUnsupported, kCorrupt, and a kIo
// error that names a field (such as the folder of T1) give kUsage; errors of IsLimit() give kLimit;
// kCancelled gives kHungUp after SIGHUP, else kInterrupted; all others give kError.
[[nodiscard]] ExitCode ExitCodeFor(const Status& status);
// Returns `status` as an error of the command line: turns kIo into kInvalidArgument, because
// reading a file that an option names fails the same way at every try if permission is missing or
// the path is a folder.
[[nodiscard]] Status AsUsage(const Status& status);
}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_EXIT_CODE_H_
