#include "src/cli/bench_options.h"

#include "src/cli/option_values.h"

namespace ebb::cli {

void AppendBenchOptionRows(std::vector<OptionRow>* table) {
  using G = OptionGroup;
  const std::vector<OptionRow> rows = {
      ValueRow(G::kFidelity, "--text", "FILE",
               "text to judge on; without it, the model's own greedy text",
               [](CliOptions& o) { return &o.fidelity.text_file; }),
      ValueRow(G::kBenchDepth, "--depth", "N", "tokens in the cache when the measurement begins",
               [](CliOptions& o) { return &o.bench.depth; }, {.min = 0}),
      ValueRow(G::kBenchDepths, "--depths", "N,N,...", "depths to compare at",
               [](CliOptions& o) { return &o.bench.depths; }, {.min = 0}),
      FlagRow(
          G::kBenchDecode, "--no-mass", "do not compute the mass per row",
          [](CliOptions& o) { return &o.bench.no_mass; }, true),
      ValueRow(G::kBench, "--repetitions", "N", "measurements, of which the median is reported",
               [](CliOptions& o) { return &o.bench.repetitions; }, {.min = 1}),
  };
  table->insert(table->end(), rows.begin(), rows.end());
}

}  // namespace ebb::cli
