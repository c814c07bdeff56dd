// How the program ends.
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

// kInvalidArgument, kNotFound, kUnsupported, kCorrupt, and kIo of a field, such as the folder of
// T1: kUsage; IsLimit(): kLimit; kCancelled: kHungUp after SIGHUP, else kInterrupted; all others:
// kError.
[[nodiscard]] ExitCode ExitCodeFor(const Status& status);
// Returns the error of a file that an option names, for reading: kIo becomes kInvalidArgument,
// since a file that may not be read, or a folder in its place, fails again.
[[nodiscard]] Status AsUsage(const Status& status);
// Returns Status::Text() with the command-line option in place of the library's field: "--memory:
// ..." for an error about "memory_bytes"; of options that set one field, the one in `given`.
[[nodiscard]] std::string TextWithOption(const Status& status, const GivenOptions& given = {});
// Writes "ebb: <TextWithOption()>" to stderr; names of files and other text from outside as
// ShownOnTerminal(), into files too, since logs are read on terminals. REQUIRES: !status.ok().
ExitCode Fail(const Status& status, const GivenOptions& given = {});

}  // namespace ebb::cli

#endif  // EBB_APPS_EXIT_CODE_H_
