#include "src/cli/option_values.h"
#include "src/cli/options.h"

namespace ebb::cli {
namespace {

// A row whose text changes what is asked of the tiers. The engine makes the tiers that the session
// uses.
template <typename Parse>
OptionRow TierRow(std::string name, std::string value, std::string help, Parse parse) {
  return {OptionGroup::kPolicy,
          std::move(name),
          std::move(value),
          std::move(help),
          [parse](std::string_view text, CliOptions* options) {
            TierSpec spec = options->session.policy.tiers.value_or(TierSpec());
            EBB_RETURN_IF_ERROR(parse(text, &spec));
            options->session.policy.tiers = spec;
            options->engine.tiers = spec;
            return OkStatus();
          },
          nullptr};
}

}  // namespace

void AppendTierOptionRows(std::vector<OptionRow>* table) {
  const std::vector<OptionRow> rows = {
      TierRow(
          "--t0", "PERCENT|SIZE",
          "fast memory: a share of the unprotected full-precision rows, or a hard cap; the tiers "
          "place the rows, and --policy only names the scorer (default: 50%)",
          ParseT0),
      TierRow("--t1", "none|host|file[:FOLDER][,SIZE]",
              "capacity memory, exact: where it lies, and its hard cap (default: file)", ParseT1),
      TierRow("--t2", "PERCENT[:int8|int4]",
              "compressed memory: a share of the unprotected rows that stay (default: 0%)",
              ParseT2),
      TierRow(
          "--evict", "PERCENT",
          "the share of the unprotected rows that goes, or more where T0 and T1 both have a cap "
          "and do not hold the rest (default: 0%)",
          ParseEvict),
      TierRow("--evict-of", "generated|alive",
              "what --evict is a share of: the rows ever unprotected, or at every interval those "
              "still alive, which compounds (default: generated)",
              ParseEvictOf),
  };
  table->insert(table->end(), rows.begin(), rows.end());
}

}  // namespace ebb::cli
