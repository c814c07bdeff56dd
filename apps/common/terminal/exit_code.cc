#include "apps/common/terminal/exit_code.h"

#include <array>

#include "apps/common/terminal/interrupt.h"

namespace ebb::cli {

std::span<const ExitCodeInfo> ExitCodes() {
  static constexpr std::array kCodes = {
      ExitCodeInfo{ExitCode::kOk, "done; a text ended by itself, a stop string or its length"},
      ExitCodeInfo{ExitCode::kError,
                   "a temporary error: of the system, the network or a disk, a port in use, "
                   "or an output that could not be written"},
      ExitCodeInfo{ExitCode::kUsage,
                   "an unknown command or option, a value that is not valid, or a file, model or "
                   "host that is missing or cannot be used; the same command fails again"},
      ExitCodeInfo{ExitCode::kLimit, "the context or the cap on memory was reached"},
      ExitCodeInfo{ExitCode::kHungUp, "the terminal hung up; a session was saved"},
      ExitCodeInfo{ExitCode::kInterrupted, "interrupted by Ctrl-C or SIGTERM; a second one kills"},
  };
  return kCodes;
}

ExitCode ExitCodeFor(const Status& status) {
  if (IsLimit(status.code())) return ExitCode::kLimit;
  switch (status.code()) {
    case StatusCode::kOk:
      return ExitCode::kOk;
    case StatusCode::kInvalidArgument:
    case StatusCode::kNotFound:
    case StatusCode::kUnsupported:
    case StatusCode::kCorrupt:
      return ExitCode::kUsage;
    case StatusCode::kCancelled:
      return HungUp() ? ExitCode::kHungUp : ExitCode::kInterrupted;
    case StatusCode::kIo:
      return status.field().empty() ? ExitCode::kError : ExitCode::kUsage;
    default:
      return ExitCode::kError;
  }
}

Status AsUsage(const Status& status) {
  if (status.code() != StatusCode::kIo) return status;
  return {StatusCode::kInvalidArgument, status.field(), status.message()};
}

}  // namespace ebb::cli
