#include "src/cli/serve_options.h"

#include "src/cli/option_values.h"
#include "src/cli/options.h"

namespace ebb::cli {
namespace {

using G = OptionGroup;
using server::MetricsAlias;

}  // namespace

void AppendServeOptionRows(std::vector<OptionRow>* table) {
  const std::vector<OptionRow> rows = {
      ValueRow(
          G::kServe, "--host", "NAME",
          "the name or address to listen on; anything but this machine's own is open to others",
          [](CliOptions& o) { return &o.serve.host; }),
      ValueRow(G::kServe, "--port", "N", "the port to listen on; 0: a free one",
               [](CliOptions& o) { return &o.serve.port; }, {.min = 0, .max = 65535}),
      ValueRow(G::kServe, "--max-stall", "MS",
               "how long a prompt may keep other answers waiting, as far as earlier steps tell",
               [](CliOptions& o) { return &o.serve.max_stall_ms; }, {.min = 1, .max = 600000}),
      ValueRow(G::kServe, "--max-running", "N", "answers that are computed at once",
               [](CliOptions& o) { return &o.serve.max_running; }, {.min = 1, .max = 4096}),
      ValueRow(G::kServe, "--max-queue", "N",
               "requests that wait for their turn; more are refused with 503 and Retry-After",
               [](CliOptions& o) { return &o.serve.max_queue; }, {.min = 1, .max = 100000}),
      ChoiceRow<MetricsAlias>(
          G::kServe, "--metrics-alias",
          "other names beside those of ebb in /metrics, for routers and autoscalers",
          [](CliOptions& o) { return &o.serve.metrics_alias; },
          {{"none", MetricsAlias::kNone}, {"vllm", MetricsAlias::kVllm}}),
  };
  table->insert(table->end(), rows.begin(), rows.end());
}

}  // namespace ebb::cli
