#include "apps/common/options/option_errors.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "apps/common/terminal/say.h"
#include "apps/common/terminal/terminal_text.h"

namespace ebb::cli {

std::string TextWithOption(const Status& status, const GivenOptions& given) {
  struct Option {
    std::string_view field;
    std::string_view name;
    std::optional<SharedField> shared = std::nullopt;  // other options set it too
    std::string_view key = "";                         // of the option's value
    std::string_view way_out = "";                     // behind the message
  };
  using F = SharedField;
  static constexpr std::array<Option, 20> kOptions = {{
      {.field = "adapter", .name = "--adapter"},
      {.field = "context",
       .name = "--context",
       .way_out = " (--rope-scaling yarn --rope-factor X, or --past-context rerotate; leave it out "
                  "for what the "
                  "model was trained for)"},
      {.field = "kv_cap_bytes", .name = "--kv-cap"},
      {.field = "memory_bytes", .name = "--memory"},
      {.field = "path", .name = "--model", .shared = F::kModel},
      {.field = "policy.budget", .name = "--budget", .shared = F::kBudget},
      {.field = "policy.read", .name = "--read"},
      {.field = "policy.scorer", .name = "--scorer"},
      {.field = "threads", .name = "--threads"},
      {.field = "tiers.t0_cap_bytes", .name = "--t0"},
      {.field = "tiers.t0_share", .name = "--t0"},
      {.field = "tiers.evict_beyond_caps", .name = "--evict caps"},
      {.field = "tiers.evict_share", .name = "--evict"},
      {.field = "tiers.t1_mass", .name = "--t1-read select", .shared = F::kT1Read, .key = ":mass"},
      {.field = "tiers.t1_path", .name = "--t1 file:FOLDER"},
      {.field = "tiers.t1_read", .name = "--t1-read", .shared = F::kT1Read},
      {.field = "tiers.t1_reuse",
       .name = "--t1-read select",
       .shared = F::kT1Read,
       .key = ":reuse"},
      {.field = "tiers.t1_rows", .name = "--t1-read select", .shared = F::kT1Read, .key = ":rows"},
      {.field = "tiers.t2_rows", .name = "--t2 old", .shared = F::kT2},
      {.field = "tiers.t2_share", .name = "--t2", .shared = F::kT2},
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
