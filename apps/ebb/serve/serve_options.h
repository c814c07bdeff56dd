// Declares the options that only `ebb serve` takes.
#ifndef EBB_APPS_OPTIONS_SERVE_OPTIONS_H_
#define EBB_APPS_OPTIONS_SERVE_OPTIONS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "src/server/access/access_record.h"
#include "src/server/api/openai/reasoning_field.h"
#include "src/server/chat/chat_page.h"
#include "src/server/monitoring/dashboard_mode.h"
#include "src/server/monitoring/metrics_alias.h"
#include "src/store/store_url.h"

namespace ebb::cli {

struct OptionRow;

inline constexpr uint64_t kDefaultPrefixStoreBytes = uint64_t{4} << 30;

// ServeInput holds the options of `ebb serve`.
struct ServeInput {
  std::string host = "127.0.0.1";
  int port = 8080;
  int max_stall_ms = 200;
  int max_running = 32;
  int max_queue = 64;
  std::string config;      // a file of options; empty: none
  std::string api_keys;    // a file; empty: none are asked for
  std::string new_key;     // the name of a key to make; empty: none
  std::string access_log;  // "stderr" or a file; empty: none
  server::AccessLogFormat access_log_format = server::AccessLogFormat::kText;
  std::vector<std::string> aliases;
  bool any_model = false;
  std::vector<std::string> cors_origins;
  std::vector<std::string> allowed_hosts;
  int drain_seconds = 30;
  uint64_t prefix_cache_bytes = uint64_t{1} << 30;  // 0: off
  server::MetricsAlias metrics_alias = server::MetricsAlias::kNone;
  server::ChatPageMode chat_page = server::ChatPageMode::kOn;
  server::DashboardMode dashboard = server::DashboardMode::kFigures;
  server::ReasoningField reasoning_field = server::ReasoningField::kReasoningContent;
  std::optional<store::StoreUrl> sessions;
  // Holds the byte limit of the prompts stored under --sessions; 0: off; unset:
  // kDefaultPrefixStoreBytes if --sessions was given.
  std::optional<uint64_t> prefix_store_bytes;
  // session_idle, session_lifetime and session_lease are in seconds.
  int session_idle = 300;
  int session_lifetime = 7 * 86400;
  int session_lease = 10;
  int checkpoint_every = 256;  // tokens
};

void AppendServeOptionRows(std::vector<OptionRow>* table);

}  // namespace ebb::cli

#endif  // EBB_APPS_OPTIONS_SERVE_OPTIONS_H_
