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
      ExitCodeInfo{
          ExitCode::kError,
          "an error: a file, the model, the system, or an output that could not be written"},
      ExitCodeInfo{ExitCode::kUsage, "an unknown command or option, or a value that is not valid"},
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
      return ExitCode::kUsage;
    case StatusCode::kCancelled:
      return HungUp() ? ExitCode::kHungUp : ExitCode::kInterrupted;
    default:
      return ExitCode::kError;
  }
}

std::string TextWithOption(const Status& status) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kOptions = {{
      {"kv_cap_bytes", "--kv-cap"},
      {"memory_bytes", "--memory"},
      {"policy.budget", "--budget"},
      {"policy.scorer", "--scorer"},
      {"threads", "--threads"},
      {"tiers.evict_beyond_caps", "--evict caps"},
      {"tiers.t1_mass", "--t1-read select:mass"},
      {"tiers.t1_path", "--t1 file:FOLDER"},
      {"tiers.t1_read", "--t1-read"},
      {"tiers.t1_rows", "--t1-read select:rows"},
      {"tiers.t2_rows", "--t2"},
  }};
  const auto found = std::ranges::find(kOptions, std::string_view(status.field()),
                                       &decltype(kOptions)::value_type::first);
  return found == kOptions.end() ? status.Text()
                                 : fmt::format("{}: {}", found->second, status.message());
}

ExitCode Fail(const Status& status) {
  Say("ebb: {}\n", ShownOnTerminal(TextWithOption(status)));
  return ExitCodeFor(status);
}

}  // namespace ebb::cli
