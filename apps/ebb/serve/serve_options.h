// Declares the options that only `ebb serve` takes.
#ifndef EBB_APPS_EBB_SERVE_SERVE_OPTIONS_H_
#define EBB_APPS_EBB_SERVE_SERVE_OPTIONS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "src/server/access/access_record.h"
#include "src/server/server.h"

namespace ebb::cli {

struct OptionRow;

// ServeInput holds the options of `ebb serve`.
struct ServeInput {
  server::ServerOptions server = {
      .driver = {.prefix_cache_bytes = uint64_t{1} << 30},
      .prefix_store = {.most_bytes = uint64_t{4} << 30},
  };
  bool prefix_store_given = false;
  int max_stall_ms = 200;
  std::string config;    // a file of options; empty: none
  std::string api_keys;  // a file; empty: none are asked for
  std::string new_key;   // the name of a key to make; empty: none
  bool new_key_is_admin = false;
  std::string access_log;  // "stderr" or a file; empty: none
  server::AccessLogFormat access_log_format = server::AccessLogFormat::kText;
  int drain_seconds = 30;
};

void AppendServeOptionRows(std::vector<OptionRow>* table);

}  // namespace ebb::cli

#endif  // EBB_APPS_EBB_SERVE_SERVE_OPTIONS_H_
