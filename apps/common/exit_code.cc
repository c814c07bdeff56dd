#include "apps/common/exit_code.h"

#include <algorithm>
#include <array>
#include <cstdio>

#include <fmt/format.h>

#include "apps/common/interrupt.h"
#include "apps/common/terminal/say.h"
#include "apps/common/terminal/terminal_text.h"

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

std::string TextWithOption(const Status& status, const GivenOptions& given) {
  struct Option {
    std::string_view field;
    std::string_view name;
    std::optional<SharedField> shared = std::nullopt;  // other options set it too
    std::string_view key = "";                         // of the option's value
    std::string_view way_out = "";                     // behind the message
  };
  using F = SharedField;
  static constexpr std::array<Option, 17> kOptions = {{
      {.field = "adapter", .name = "--adapter"},
      {.field = "context",
       .name = "--context",
       .way_out = " (--rope-scaling yarn --rope-factor X, --past-context rerotate)"},
      {.field = "kv_cap_bytes", .name = "--kv-cap"},
      {.field = "memory_bytes", .name = "--memory"},
      {.field = "path", .name = "--model", .shared = F::kModel},
      {.field = "policy.budget", .name = "--budget", .shared = F::kBudget},
      {.field = "policy.scorer", .name = "--scorer"},
      {.field = "threads", .name = "--threads"},
      {.field = "tiers.t0_cap_bytes", .name = "--t0"},
      {.field = "tiers.t0_share", .name = "--t0"},
      {.field = "tiers.evict_beyond_caps", .name = "--evict caps"},
      {.field = "tiers.t1_mass", .name = "--t1-read select", .shared = F::kT1Read, .key = ":mass"},
      {.field = "tiers.t1_path", .name = "--t1 file:FOLDER"},
      {.field = "tiers.t1_read", .name = "--t1-read", .shared = F::kT1Read},
      {.field = "tiers.t1_reuse",
       .name = "--t1-read select",
       .shared = F::kT1Read,
       .key = ":reuse"},
      {.field = "tiers.t1_rows", .name = "--t1-read select", .shared = F::kT1Read, .key = ":rows"},
      {.field = "tiers.t2_rows", .name = "--t2 old", .shared = F::kT2},
  }};
  const auto found = std::ranges::find(kOptions, std::string_view(status.field()), &Option::field);
  if (found == kOptions.end()) return status.Text();
  std::string_view option = found->name;
  if (found->shared.has_value()) {
    const std::string_view other = given.OptionThatSet(*found->shared);
    if (!other.empty() && !option.starts_with(other)) option = other;
  }
  return fmt::format("{}{}: {}{}", option, found->key, status.message(), found->way_out);
}

ExitCode Fail(const Status& status, const GivenOptions& given) {
  Say("ebb: {}\n", ShownOnTerminal(TextWithOption(status, given)));
  return ExitCodeFor(status);
}

}  // namespace ebb::cli
