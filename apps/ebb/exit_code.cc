#include "apps/ebb/exit_code.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <utility>

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

namespace {

// NameDraftInErrors() sets it before the command runs; TextWithOption() reads it.
bool selection_is_of_draft = false;

}  // namespace

void NameDraftInErrors() { selection_is_of_draft = true; }

std::string TextWithOption(const Status& status) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kOptions = {{
      {"kv_cap_bytes", "--kv-cap"},
      {"memory_bytes", "--memory"},
      {"policy.budget", "--budget"},
      {"policy.scorer", "--scorer"},
      {"threads", "--threads"},
      {"tiers.t0_cap_bytes", "--t0"},
      {"tiers.evict_beyond_caps", "--evict caps"},
      {"tiers.t1_mass", "--t1-read select:mass"},
      {"tiers.t1_path", "--t1 file:FOLDER"},
      {"tiers.t1_read", "--t1-read"},
      {"tiers.t1_rows", "--t1-read select:rows"},
      {"tiers.t2_rows", "--t2"},
  }};
  const auto found = std::ranges::find(kOptions, std::string_view(status.field()),
                                       &decltype(kOptions)::value_type::first);
  if (found == kOptions.end()) return status.Text();
  std::string option(found->second);
  constexpr std::string_view kT1Read = "--t1-read";
  if (selection_is_of_draft && option.starts_with(kT1Read)) {
    option.replace(0, kT1Read.size(), "--draft");
  }
  return fmt::format("{}: {}", option, status.message());
}

ExitCode Fail(const Status& status) {
  Say("ebb: {}\n", ShownOnTerminal(TextWithOption(status)));
  return ExitCodeFor(status);
}

}  // namespace ebb::cli
