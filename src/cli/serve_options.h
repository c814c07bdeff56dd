// What `ebb serve` alone takes.
#ifndef EBB_CLI_SERVE_OPTIONS_H_
#define EBB_CLI_SERVE_OPTIONS_H_

#include <string>
#include <vector>

#include "src/server/metrics_alias.h"

namespace ebb::cli {

struct OptionRow;

struct ServeInput {
  std::string host = "127.0.0.1";
  int port = 8080;
  int max_stall_ms = 200;
  int max_running = 32;
  int max_queue = 64;
  server::MetricsAlias metrics_alias = server::MetricsAlias::kNone;
};

void AppendServeOptionRows(std::vector<OptionRow>* table);

}  // namespace ebb::cli

#endif  // EBB_CLI_SERVE_OPTIONS_H_
