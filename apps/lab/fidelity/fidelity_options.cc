#include "apps/lab/fidelity/fidelity_options.h"

#include "apps/common/options/option_values.h"
#include "apps/common/options/options.h"

namespace ebb::cli {

void AppendFidelityOptionRows(std::vector<OptionRow>* table) {
  using G = OptionGroup;
  const std::vector<OptionRow> rows = {
      NameRow(G::kFidelity, "--text", "FILE",
              "text to judge on; without it, the model's own greedy text",
              [](CliOptions& o) { return &o.Of<FidelityInput>().text_file; }),
      ValueRow(G::kFidelity, "--tokens", "N",
               "tokens of text to judge on; 0: all of the file, or one window of the model's own",
               [](CliOptions& o) { return &o.Of<FidelityInput>().tokens; }, {.min = 0}),
      ValueRow(G::kFidelity, "--windows", "N", "windows to judge on; 0: as many as there are",
               [](CliOptions& o) { return &o.Of<FidelityInput>().windows; }, {.min = 0}),
      ValueRow(G::kFidelity, "--window-tokens", "N", "tokens of a window, the prompt's included",
               [](CliOptions& o) { return &o.Of<FidelityInput>().window_tokens; }, {.min = 2}),
      ValueRow(G::kFidelity, "--prompt-tokens", "N",
               "tokens of a window that are read as its prompt; the others are decoded and judged",
               [](CliOptions& o) { return &o.Of<FidelityInput>().prompt_tokens; }, {.min = 1}),
      FlagRow(
          G::kFidelity, "--forgetting",
          "measure too what evicted rows cost the output of each attention head",
          [](CliOptions& o) { return &o.Of<FidelityInput>().forgetting; }, true),
  };
  table->insert(table->end(), rows.begin(), rows.end());
}

}  // namespace ebb::cli
