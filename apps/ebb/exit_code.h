// How the program ends.
#ifndef EBB_APPS_EXIT_CODE_H_
#define EBB_APPS_EXIT_CODE_H_

#include <span>
#include <string>
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

// kInvalidArgument, kNotFound, kUnsupported, kCorrupt, and kIo of a field, such as the folder of
// T1: kUsage; IsLimit(): kLimit; kCancelled: kHungUp after SIGHUP, else kInterrupted; all others:
// kError.
[[nodiscard]] ExitCode ExitCodeFor(const Status& status);
// Returns the error of a file that an option names, for reading: kIo becomes kInvalidArgument,
// since a file that may not be read, or a folder in its place, fails again.
[[nodiscard]] Status AsUsage(const Status& status);
inline constexpr std::string_view kT1ReadOption = "--t1-read";
// Returns Status::Text() with the command-line option in place of the library's field: "--memory:
// ..." for an error about "memory_bytes". rows_read_option: the option that says which rows of T1
// are read; see OptionOfRowsRead() of options.h.
[[nodiscard]] std::string TextWithOption(const Status& status,
                                         std::string_view rows_read_option = kT1ReadOption);
// Writes "ebb: <TextWithOption()>" to stderr; names of files and other text from outside as
// ShownOnTerminal(), into files too, since logs are read on terminals. REQUIRES: !status.ok().
ExitCode Fail(const Status& status, std::string_view rows_read_option = kT1ReadOption);

}  // namespace ebb::cli

#endif  // EBB_APPS_EXIT_CODE_H_
