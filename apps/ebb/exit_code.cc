#include "apps/ebb/exit_code.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include <fmt/format.h>

#include "apps/ebb/interrupt.h"
#include "apps/ebb/terminal/say.h"
#include "apps/ebb/terminal/terminal_text.h"

namespace ebb::cli {

std::span<const ExitCodeInfo> ExitCodes() {
  static constexpr std::array kCodes = {
      ExitCodeInfo{ExitCode::kOk, "done; a text ended by itself, a stop string or its length"},
      ExitCodeInfo{ExitCode::kError,
                   "an error that may pass: of the system, the network or a disk, a port in use, "
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

std::string TextWithOption(const Status& status, std::string_view rows_read_option) {
  struct Option {
    std::string_view field;
    std::string_view name;
    std::string_view way_out = "";  // behind the message
  };
  static constexpr std::array<Option, 16> kOptions = {{
      {"adapter", "--adapter"},
      {"context", "--context", " (--rope-scaling yarn --rope-factor X, --past-context rerotate)"},
      {"kv_cap_bytes", "--kv-cap"},
      {"memory_bytes", "--memory"},
      {"path", "--model"},
      {"policy.budget", "--budget"},
      {"policy.scorer", "--scorer"},
      {"threads", "--threads"},
      {"tiers.t0_cap_bytes", "--t0"},
      {"tiers.evict_beyond_caps", "--evict caps"},
      {"tiers.t1_mass", "--t1-read select:mass"},
      {"tiers.t1_path", "--t1 file:FOLDER"},
      {"tiers.t1_read", "--t1-read"},
      {"tiers.t1_reuse", "--t1-read select:reuse"},
      {"tiers.t1_rows", "--t1-read select:rows"},
      {"tiers.t2_rows", "--t2"},
  }};
  const auto found = std::ranges::find(kOptions, std::string_view(status.field()), &Option::field);
  if (found == kOptions.end()) return status.Text();
  std::string option(found->name);
  if (option.starts_with(kT1ReadOption)) option.replace(0, kT1ReadOption.size(), rows_read_option);
  return fmt::format("{}: {}{}", option, status.message(), found->way_out);
}

ExitCode Fail(const Status& status, std::string_view rows_read_option) {
  Say("ebb: {}\n", ShownOnTerminal(TextWithOption(status, rows_read_option)));
  return ExitCodeFor(status);
}

}  // namespace ebb::cli
