#include "apps/lab/profile/profile_options.h"

#include "apps/common/options/option_values.h"
#include "apps/common/options/options.h"

namespace ebb::cli {

void AppendProfileOptionRows(std::vector<OptionRow>* table) {
  using G = OptionGroup;
  const std::vector<OptionRow> rows = {
      NameRow(G::kProfile, "--prompts", "FILE",
              "profile many prompts, one a line: text, or JSON objects with a \"prompt\" or a "
              "\"question\"",
              [](CliOptions& o) { return &o.Of<ProfileInput>().prompts_file; }),
      ValueRow(G::kProfile, "--transfer-tokens", "N",
               "most tokens that are moved between tiers to measure how long that takes; 0: none",
               [](CliOptions& o) { return &o.Of<ProfileInput>().transfer_tokens; }, {.min = 0}),
      ValueRow(G::kProfile, "--why", "POSITION",
               "print why the token at this position of the sequence, from 0, lies in the tier it "
               "lies in: "
               "each decision that moved it, with its score, its rank and the rule",
               [](CliOptions& o) { return &o.Of<ProfileInput>().why; }, {.min = 0}),
  };
  table->insert(table->end(), rows.begin(), rows.end());
}

}  // namespace ebb::cli
