#include "apps/lab/importance/importance_options.h"

#include "apps/common/options/option_values.h"
#include "apps/common/options/options.h"

namespace ebb::cli {

void AppendImportanceOptionRows(std::vector<OptionRow>* table) {
  using G = OptionGroup;
  const std::vector<OptionRow> rows = {
      ValueRow(G::kImportance, "--occlude", "N", "tokens that are replaced together",
               [](CliOptions& o) { return &o.Of<ImportanceInput>().window; }, {.min = 1}),
      ValueRow(G::kImportance, "--stride", "N", "tokens from one such window to the next",
               [](CliOptions& o) { return &o.Of<ImportanceInput>().stride; }, {.min = 1}),
      ValueRow(G::kImportance, "--answer-tokens", "N",
               "most tokens that are generated after each occluded thought",
               [](CliOptions& o) { return &o.Of<ImportanceInput>().answer_tokens; }, {.min = 1}),
      ValueRow(G::kImportance, "--boundary", "TEXT",
               "the thought ends after the last place where the model wrote this; not given: the "
               "thinking tag, else \"\\boxed{\", else 64 tokens before the end",
               [](CliOptions& o) { return &o.Of<ImportanceInput>().boundary; }),
  };
  table->insert(table->end(), rows.begin(), rows.end());
}

}  // namespace ebb::cli
