// Defines the exit codes of the programs, and how an error is reported.
#ifndef EBB_APPS_EXIT_CODE_H_
#define EBB_APPS_EXIT_CODE_H_

#include <span>
#include <string>
#include <string_view>

#include "apps/common/options/given_options.h"
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
// Returns Status::Text() with the command-line option in place of the library's field: "--memory:
// ..." for an error about "memory_bytes". If several options set the field, names the one in
// `given`.
[[nodiscard]] std::string TextWithOption(const Status& status, const GivenOptions& given = {});
// Writes "ebb: <TextWithOption()>" to stderr and returns ExitCodeFor(status). Control characters in
// names from outside are escaped by ShownOnTerminal() even if stderr is a file, since logs are read
// on terminals later. REQUIRES: !status.ok().
ExitCode Fail(const Status& status, const GivenOptions& given = {});

}  // namespace ebb::cli

#endif  // EBB_APPS_EXIT_CODE_H_
