#include <fmt/format.h>

#include <algorithm>

#include "apps/common/options/option_values.h"
#include "apps/common/options/options.h"
#include "ebb/recent_windows.h"

namespace ebb::cli {
namespace {

constexpr OptionGroup kGroup = OptionGroup::kLossless;

// kFixedLength is the number of tokens of a verifying step for commands that must repeat their
// results; it is small, because a draft often fails early.
constexpr int kFixedLength = 8;

LosslessOptions& LosslessOf(CliOptions& options) { return options.lossless.options; }

Status ReadVerify(std::string_view text, CliOptions* options) {
  EBB_ASSIGN_OR_RETURN(LosslessOf(*options).verify, ParseVerify(text));
  options->lossless.option_given = "--verify";
  options->lossless.verify_given = true;
  return OkStatus();
}

// Returns whether the policy has a parameter `key` of its own, such as h2o's sinks, which are not
// those of --sinks.
bool HasParameter(const std::string& policy, const std::string& key) {
  const auto found = std::ranges::find(BuiltinPolicies(), policy, &PolicyInfo::name);
  return found != BuiltinPolicies().end() &&
         fmt::format(",{}", found->params).find(fmt::format(",{}=", key)) != std::string::npos;
}

bool IsSelect(std::string_view draft) { return draft == "select" || draft.starts_with("select:"); }

// Parses NAME[:KEY=VALUE,...]. Keys that name options of every policy (sinks, window, interval,
// budget) set these options for the draft.
Status ReadDraft(std::string_view text, CliOptions* options) {
  options->lossless.option_given = "--draft";
  options->lossless.draft.reset();
  options->lossless.draft_reads.reset();
  if (IsSelect(text)) return ParseT1Read(text, &options->lossless.draft_reads.emplace());
  PolicySpec policy;
  EBB_RETURN_IF_ERROR(ParsePolicy(text, &policy));
  const auto take = [&](const std::string& key, const auto& read) -> Status {
    const auto found = policy.params.find(key);
    if (found == policy.params.end() || HasParameter(policy.name, key)) return OkStatus();
    const std::string value = found->second;
    policy.params.erase(found);
    const Status status = read(value);
    return status.ok() ? status
                       : Status(status.code(), fmt::format("{}: {}", key, status.message()));
  };
  for (auto [key, number] : {std::pair("sinks", &policy.sinks), std::pair("window", &policy.window),
                             std::pair("interval", &policy.interval)}) {
    EBB_RETURN_IF_ERROR(take(key, [&, to = number](const std::string& value) {
      return ParseValue(value, {.min = 0}, to);
    }));
  }
  EBB_RETURN_IF_ERROR(take("budget", [&](const std::string& value) -> Status {
    EBB_ASSIGN_OR_RETURN(policy.budget, ParseBudget(value));
    return OkStatus();
  }));
  options->lossless.draft = std::move(policy);
  return OkStatus();
}

void TakeDraft(const PolicySpec& draft, PolicySpec* policy) {
  policy->name = draft.name;
  policy->params = draft.params;
  if (draft.sinks.has_value()) policy->sinks = draft.sinks;
  if (draft.window.has_value()) policy->window = draft.window;
  if (draft.interval.has_value()) policy->interval = draft.interval;
  if (draft.budget.unit != Budget::Unit::kNone) policy->budget = draft.budget;
}

OptionRow LengthRow(const std::string& name, double least, std::string help,
                    int LosslessOptions::*member) {
  return {kGroup,
          name,
          "K",
          std::move(help),
          [name, least, member](std::string_view text, CliOptions* options) {
            options->lossless.option_given = name;
            options->lossless.length_given = true;
            return ParseValue(text, {.min = least, .max = kMostDrafted},
                              &(LosslessOf(*options).*member));
          },
          [member](CliOptions options) { return ShowValue(LosslessOf(options).*member); }};
}

}  // namespace

void AppendLosslessOptionRows(std::vector<OptionRow>* table) {
  const std::vector<OptionRow> rows = {
      FlagRow(
          kGroup, "--lossless",
          "the policy only drafts: every row stays in T1, steps over all of them verify several "
          "drafted tokens at once, and the text is the full cache's",
          [](CliOptions& o) { return &o.lossless.wanted; }, true),
      {kGroup, "--verify", "exact|fast",
       "how a lossless generation verifies: bit for bit, or up to the rounding of steps that take "
       "several tokens at once: products with F16 and BF16, and with all weights the attention of "
       "more than 12 tokens, which can change the text, of quantized models too (default: exact; "
       "fast on a device with --allow-inexact)",
       ReadVerify, nullptr},
      {kGroup, "--draft", "POLICY[:KEY=VALUE,...]|select[:mass=SHARE][,rows=N][,reuse=COSINE]",
       "the policy of a lossless generation; its keys may include budget, sinks, window and "
       "interval; select: drafts read T1 selectively, as --t1-read says, and no row is stored "
       "twice (default: streaming:sinks=" +
           std::to_string(kDraftSinks) + ",window=" + std::to_string(kDraftWindow) +
           ", or the rows that the tiers keep in T0 and T2)",
       ReadDraft, nullptr},
      LengthRow("--draft-max", 1, "most tokens of a verifying step; 1: nothing is drafted",
                &LosslessOptions::draft_max),
      LengthRow(
          "--draft-min", 0,
          "fewest; with 1 or more, ebb drafts even if reading all rows for each token is faster",
          &LosslessOptions::draft_min),
      {kGroup, "--no-draft-lookup", "",
       "let the draft alone guess, although the text had the same words before",
       [](std::string_view, CliOptions* options) {
         LosslessOf(*options).looks_up = false;
         options->lossless.option_given = "--no-draft-lookup";
         return OkStatus();
       },
       nullptr},
  };
  table->insert(table->end(), rows.begin(), rows.end());
}

std::vector<SharedField> FieldsOfDraft(std::string_view text) {
  if (IsSelect(text)) return {SharedField::kPolicy, SharedField::kT1Read};
  std::vector<SharedField> fields = {SharedField::kPolicy};
  PolicySpec policy;
  if (!ParsePolicy(text, &policy).ok()) return fields;
  for (const auto& [key, field] :
       {std::pair("budget", SharedField::kBudget), std::pair("sinks", SharedField::kSinks),
        std::pair("window", SharedField::kWindow), std::pair("interval", SharedField::kInterval)}) {
    if (policy.params.contains(key) && !HasParameter(policy.name, key)) fields.push_back(field);
  }
  return fields;
}

Status SettleLossless(CliOptions* options) {
  LosslessInput& lossless = options->lossless;
  if (!lossless.wanted) {
    if (lossless.option_given.empty()) return OkStatus();
    return InvalidArgument(fmt::format("{} goes with --lossless", lossless.option_given));
  }
  if (const auto& reads = lossless.draft_reads; reads.has_value()) {
    std::optional<TierShares>& tiers = options->session.policy.tiers;
    if (!tiers.has_value()) tiers.emplace();
    tiers->t1_read = reads->shares.t1_read;
    tiers->t1_mass = reads->shares.t1_mass;
    tiers->t1_rows = reads->shares.t1_rows;
    tiers->t1_reuse = reads->shares.t1_reuse;
  }
  if (lossless.draft.has_value()) {
    TakeDraft(*lossless.draft, &options->session.policy);
  }
  // A device can verify only with Verify::kFast.
  if (!lossless.verify_given && options->engine.allow_inexact &&
      options->engine.device.kind == DeviceKind::kBackend) {
    lossless.options.verify = LosslessOptions::Verify::kFast;
  }
  options->session.lossless = lossless.options;
  return OkStatus();
}

void ChooseDraft(CliOptions* options) {
  if (!options->session.lossless.has_value()) return;
  if (options->shared.Sets({SharedField::kPolicy})) return;
  options->session.policy = DefaultDraft(std::move(options->session.policy));
}

Status FixDraftLength(CliOptions* options) {
  std::optional<LosslessOptions>& lossless = options->session.lossless;
  if (!lossless.has_value()) return OkStatus();
  if (!options->lossless.length_given) lossless->draft_min = lossless->draft_max = kFixedLength;
  if (lossless->draft_min == lossless->draft_max) return OkStatus();
  return InvalidArgument(
      "a length of drafts that follows the clock gives results that do not repeat; give "
      "--draft-min and --draft-max the same number");
}

}  // namespace ebb::cli
