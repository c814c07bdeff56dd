#include <fmt/format.h>

#include "apps/common/models/known_models.h"
#include "apps/common/options/option_values.h"
#include "apps/common/options/options.h"
#include "ebb/recent_windows.h"
#include "ebb/setting_fields.h"

namespace ebb::cli {
namespace {

// Returns the tiers that the options give so far.
TierSetting TiersIn(const CliOptions& options) {
  return {options.engine.tiers.value_or(EngineTiers()),
          options.session.policy.tiers.value_or(TierShares())};
}

// Returns the row of an option that changes the tiers of the engine or of the session.
template <typename Parse>
OptionRow TierRow(std::string name, std::string value, std::string help, Parse parse) {
  const bool places_rows = name != "--t1";
  return {OptionGroup::kPolicy,
          std::move(name),
          std::move(value),
          std::move(help),
          [parse, places_rows](std::string_view text, CliOptions* options) {
            TierSetting tiers = TiersIn(*options);
            EBB_RETURN_IF_ERROR(parse(text, &tiers));
            options->engine.tiers = tiers.engine;
            if (places_rows) options->session.policy.tiers = tiers.shares;
            return OkStatus();
          },
          nullptr};
}

// Reads the value of --read. Tiers read selected rows, and the policy reads as Quest does.
Status ReadRows(std::string_view text, CliOptions* options) {
  const bool is_quest = text == "quest" || text.starts_with("quest:");
  if (!is_quest && text != "all" && text != "select" && !text.starts_with("select:")) {
    return InvalidArgument(fmt::format("expected all, select or quest, found \"{}\"", text));
  }
  options->session.policy.read = is_quest ? text : "";
  if (is_quest || (text == "all" && !options->session.policy.tiers.has_value())) return OkStatus();
  TierSetting tiers = TiersIn(*options);
  EBB_RETURN_IF_ERROR(ParseT1Read(text, &tiers));
  options->engine.tiers = tiers.engine;
  options->session.policy.tiers = tiers.shares;
  return OkStatus();
}

Status ReadDevice(std::string_view text, CliOptions* options) {
  EBB_ASSIGN_OR_RETURN(options->engine.device, ParseDevice(text));
  if (const std::string folder = CacheFolder(); !folder.empty()) {
    options->engine.rates_file = folder + "/device-rates.json";
  }
  return OkStatus();
}

std::vector<OptionRow> DeviceRows() {
  return {
      {OptionGroup::kPolicy, "--device", "cpu|NAME[:KEY=VALUE,...]",
       "the place of T0: the host's memory, or a device that `ebb device list` names, which then "
       "holds the weights and computes; its keys are memory (for rows; default: all that it has) "
       "and attention (auto, or ggml's over gathered rows: flash, eager) (default: cpu)",
       ReadDevice, nullptr},
      ChoiceRow<T1Mode>(
          OptionGroup::kPolicy, "--t1-mode",
          "how a step on a device reads rows of T1: the host attends to them (compute), or they "
          "are streamed to the device, which changes no bit; auto streams, or selects the faster "
          "way with --allow-inexact",
          [](CliOptions& o) { return &o.engine.t1_mode; },
          {{"auto", T1Mode::kAuto}, {"compute", T1Mode::kCompute}, {"stream", T1Mode::kStream}}),
      FlagRow(
          OptionGroup::kPolicy, "--allow-inexact",
          "let --t1-mode auto, and --lossless on a device, choose ways that are exact up to "
          "rounding only; bandwidths of a device are measured once and kept in "
          "${XDG_CACHE_HOME:-~/.cache}/ebb/device-rates.json",
          [](CliOptions& o) { return &o.engine.allow_inexact; }, true),
  };
}

}  // namespace

void AppendTierOptionRows(std::vector<OptionRow>* table) {
  const std::vector<OptionRow> rows = {
      TierRow(
          "--t0", "PERCENT|SIZE",
          "fast memory: a share of the unprotected full-precision rows, or a hard cap; --policy "
          "ranks the rows for the tiers, and with a budget evicts some before (default: 50%)",
          ParseT0),
      TierRow("--t1", "none|host|file[:FOLDER][,SIZE]",
              "capacity memory, exact: its place and its hard cap; a FOLDER with a comma in its "
              "name is followed by one more comma (file:/tmp/a,b,); none: T0 holds all rows in "
              "full precision and ignores its share (default: file; host if steps run on a device)",
              ParseT1),
      {OptionGroup::kPolicy, "--read",
       "all|select[:mass=SHARE][,rows=N][,reuse=COSINE]|quest[:rows=N|:share=PERCENT][,page=N]",
       "the rows that a generated token reads: all; select: as --t1-read select; quest: in each kv "
       "head the pages of 16 rows (page) whose keys could give one of its query heads the largest "
       "logits, 1,024 rows together unless rows or share says otherwise; neither frees rows "
       "(default: all)",
       ReadRows, nullptr},
      TierRow(
          "--t1-read", "all|select[:mass=SHARE][,rows=N][,reuse=COSINE]",
          "the rows of T0 and T1 that a generated token reads: all, which changes no bit, or in "
          "each layer the pages of 64 rows that are estimated to receive this share of the "
          "attention, "
          "and the first and newest rows, of all these at most N; T0 holds the newest rows and a "
          "cache of pages; prompts read all rows. reuse: where the queries are at least so similar "
          "to those of the token before, read what these chose, so that T1's file is read ahead "
          "(default: all; mass 0.9)",
          ParseT1Read),
      TierRow(
          "--t2", "PERCENT|old[:int8|int4|int3|int2|int8_naive][,first=N][,newest=N]",
          "compressed memory: a share of the unprotected rows that stay, or old: all rows, "
          "those of prompts too, except " +
              RowsInT0Text(kNewestBesideT2) +
              " (first, and newest for the smaller number); int8_naive rounds as prototypes do, "
              "a control (default: 0%)",
          ParseT2),
      TierRow("--evict", "PERCENT|caps",
              "the share of the unprotected rows to evict, or more if T0 and T1 both have a cap "
              "and do not hold the rest; caps: only rows that the caps do not hold (default: 0%)",
              ParseEvict),
      TierRow("--evict-of", "generated|alive",
              "the rows that --evict is a share of: all unprotected rows, evicted ones included, "
              "or at every interval those still alive, which compounds (default: generated)",
              ParseEvictOf),
  };
  table->insert(table->end(), rows.begin(), rows.end());
  const std::vector<OptionRow> device = DeviceRows();
  table->insert(table->end(), device.begin(), device.end());
}

Status SettleTiers(CliOptions* options) {
  std::optional<EngineTiers>& engine = options->engine.tiers;
  std::optional<TierShares>& shares = options->session.policy.tiers;
  if (options->compressed.has_value()) {
    auto [below_t0, old_rows] = TiersIn(*options);
    below_t0.t1 = T1Place::kNone;
    below_t0.t2_type = options->compressed;
    old_rows.t2_rows = T2Rows::kOld;
    engine = below_t0;
    shares = old_rows;
  }
  if (options->lossless.wanted) {
    // T1 keeps every row; the draft has tiers if an option places its rows.
    if (!engine.has_value()) engine.emplace();
  } else if (engine.has_value() && !shares.has_value()) {
    shares.emplace();
  }
  const bool has_t0_share = shares.has_value() && shares->t0_share.has_value();
  return has_t0_share ? CheckT0Share(*shares) : OkStatus();
}

}  // namespace ebb::cli
