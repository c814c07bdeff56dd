#include "apps/ebb/serve/serve_options.h"

#include <fmt/format.h>

#include "apps/common/options/option_values.h"
#include "apps/common/options/options.h"
#include "src/base/text/size_text.h"
#include "src/server/access/origin.h"

namespace ebb::cli {
namespace {

using G = OptionGroup;
using server::AccessLogFormat;
using server::ChatPageMode;
using server::DashboardMode;
using server::MetricsAlias;
using server::ReasoningField;

Status ReadBytes(std::string_view text, uint64_t* bytes) {
  *bytes = 0;
  if (text == "off") return OkStatus();
  EBB_RETURN_IF_ERROR(CheckHasUnit(text, "MiB"));
  EBB_ASSIGN_OR_RETURN(*bytes, ParseBytes(text));
  return OkStatus();
}

Status ReadPrefixCache(std::string_view text, CliOptions* options) {
  return ReadBytes(text, &options->Of<ServeInput>().server.driver.prefix_cache_bytes);
}

Status ReadPrefixStore(std::string_view text, CliOptions* options) {
  ServeInput& serve = options->Of<ServeInput>();
  serve.prefix_store_given = true;
  return ReadBytes(text, &serve.server.prefix_store.most_bytes);
}

// Returns the row of an option whose value is a whole number, which the member holds in a type of
// its own.
template <typename Access>
OptionRow WholeRow(std::string name, std::string value, std::string help, Access access,
                   Range range) {
  return {G::kServe,
          std::move(name),
          std::move(value),
          std::move(help),
          [=](std::string_view text, CliOptions* options) {
            int number = 0;
            EBB_RETURN_IF_ERROR(ParseValue(text, range, &number));
            *access(*options) = static_cast<std::decay_t<decltype(*access(*options))>>(number);
            return OkStatus();
          },
          [=](CliOptions options) { return ShowValue(static_cast<int>(*access(options))); }};
}

// Returns the row with an additional check of the value before it is parsed.
OptionRow CheckedRow(OptionRow row, Status (*check)(std::string_view)) {
  row.parse = [parse = std::move(row.parse), check](std::string_view text, CliOptions* options) {
    EBB_RETURN_IF_ERROR(check(text));
    return parse(text, options);
  };
  return row;
}

OptionRow SessionsRow() {
  return {G::kServe,
          "--sessions",
          "WHERE",
          "keep the sessions of requests that name one: file:FOLDER, "
          "redis://[[USER]:PASSWORD@]HOST[:PORT][/DB] or redis+unix:PATH[?db=DB]; servers with the "
          "same place share them",
          [](std::string_view text, CliOptions* options) -> Status {
            EBB_ASSIGN_OR_RETURN(options->Of<ServeInput>().server.sessions,
                                 store::ParseStoreUrl(text));
            return OkStatus();
          },
          [](const CliOptions&) { return std::string(); }};
}

}  // namespace

void AppendServeOptionRows(std::vector<OptionRow>* table) {
  const std::vector<OptionRow> rows = {
      NameRow(G::kServe, "--config", "FILE",
              "read options from this file, such as /etc/ebb/serve.toml: lines NAME = VALUE with "
              "the long names of options; those of the command line win, --FLAG=false too",
              [](CliOptions& o) { return &o.Of<ServeInput>().config; }),
      ValueRow(
          G::kServe, "--host", "NAME",
          "the name, all of whose addresses are listened on, or the address, or unix:/path for a "
          "socket in the file system; an address that is not this machine's own is open to others",
          [](CliOptions& o) { return &o.Of<ServeInput>().server.host; }),
      WholeRow("--port", "N", "the port to listen on; 0: a free one",
               [](CliOptions& o) { return &o.Of<ServeInput>().server.port; },
               {.min = 0, .max = 65535}),
      ValueRow(G::kServe, "--alias", "NAME",
               "a name of the model in requests, in addition to the name of its file; answers "
               "contain the first one; may be repeated",
               [](CliOptions& o) { return &o.Of<ServeInput>().server.defaults.aliases; }),
      FlagRow(
          G::kServe, "--any-model",
          "accept any name of the model in requests, for clients with a fixed name",
          [](CliOptions& o) { return &o.Of<ServeInput>().server.defaults.takes_any_model; }, true),
      ValueRow(G::kServe, "--max-stall", "MS",
               "longest time that a prompt may delay other answers, estimated from earlier steps",
               [](CliOptions& o) { return &o.Of<ServeInput>().max_stall_ms; },
               {.min = 1, .max = 600000}),
      WholeRow("--max-running", "N", "answers that are computed at once",
               [](CliOptions& o) { return &o.Of<ServeInput>().server.driver.most_running; },
               {.min = 1, .max = 4096}),
      WholeRow("--max-queue", "N",
               "requests that wait for their turn; more are refused with 503 and Retry-After",
               [](CliOptions& o) { return &o.Of<ServeInput>().server.driver.most_waiting; },
               {.min = 1, .max = 100000}),
      NameRow(G::kServe, "--api-keys", "FILE",
              "require a key of this file, whose lines are a name, the key's SHA-256 and limits "
              "(docs/user/serve.md); SIGHUP reads it again",
              [](CliOptions& o) { return &o.Of<ServeInput>().api_keys; }),
      NameRow(
          G::kServe, "--new-key", "NAME",
          "make a key, add its line to the file of --api-keys, print the key, and serve nothing",
          [](CliOptions& o) { return &o.Of<ServeInput>().new_key; }),
      FlagRow(
          G::kServe, "--admin",
          "with --new-key: make an admin's key, which the dashboard's figures, /metrics and the "
          "requests of other keys need",
          [](CliOptions& o) { return &o.Of<ServeInput>().new_key_is_admin; }, true),
      NameRow(G::kServe, "--access-log", "WHERE",
              "write a line for each request: stderr, or a file, to which lines are appended and "
              "which SIGHUP opens again",
              [](CliOptions& o) { return &o.Of<ServeInput>().access_log; }),
      ChoiceRow<AccessLogFormat>(
          G::kServe, "--access-log-format", "format of the lines of --access-log",
          [](CliOptions& o) { return &o.Of<ServeInput>().access_log_format; },
          {{"text", AccessLogFormat::kText}, {"json", AccessLogFormat::kJson}}),
      CheckedRow(ValueRow(G::kServe, "--cors", "ORIGIN",
                          "accept requests of pages of this origin, such as https://example.org; "
                          "localhost: pages that the browser's own machine serves, at any port; *: "
                          "all; may be repeated",
                          [](CliOptions& o) { return &o.Of<ServeInput>().server.cors_origins; }),
                 server::CheckOrigin),
      CheckedRow(
          ValueRow(G::kServe, "--allow-host", "NAME",
                   "a host name that requests may use in addition to localhost and addresses, if "
                   "the server listens on this machine only and has no API keys; may be repeated",
                   [](CliOptions& o) { return &o.Of<ServeInput>().server.allowed_hosts; }),
          server::CheckHostName),
      ValueRow(G::kServe, "--drain-seconds", "N",
               "longest time that SIGTERM waits for answers in progress; a second signal ends them",
               [](CliOptions& o) { return &o.Of<ServeInput>().drain_seconds; },
               {.min = 0, .max = 86400}),
      {G::kServe, "--prefix-cache", "SIZE",
       "memory for cached prompts, so that common prefixes are read once; or: off", ReadPrefixCache,
       [](const CliOptions& o) {
         return fmt::format("{}MiB", o.Of<ServeInput>().server.driver.prefix_cache_bytes >> 20);
       }},
      ChoiceRow<MetricsAlias>(
          G::kServe, "--metrics-alias",
          "additional names of metrics in /metrics, for routers and autoscalers",
          [](CliOptions& o) { return &o.Of<ServeInput>().server.metrics_alias; },
          {{"none", MetricsAlias::kNone},
           {"vllm", MetricsAlias::kVllm},
           {"llamacpp", MetricsAlias::kLlamaCpp}}),
      ChoiceRow<ChatPageMode>(G::kServe, "--chat-page",
                              "serve a page at / on which a person talks to the model",
                              [](CliOptions& o) { return &o.Of<ServeInput>().server.chat_page; },
                              {{"on", ChatPageMode::kOn}, {"off", ChatPageMode::kOff}}),
      ChoiceRow<DashboardMode>(G::kServe, "--dashboard",
                               "the page at /dashboard: the use of memory and the tiers of tokens; "
                               "text: also the text of requests, for every client that can connect",
                               [](CliOptions& o) { return &o.Of<ServeInput>().server.dashboard; },
                               {{"off", DashboardMode::kOff},
                                {"figures", DashboardMode::kFigures},
                                {"text", DashboardMode::kText}}),
      ChoiceRow<ReasoningField>(
          G::kServe, "--reasoning-field",
          "the member of a chat's answer that holds the thought; both: for clients of either kind; "
          "clients that join the two show it twice",
          [](CliOptions& o) { return &o.Of<ServeInput>().server.reasoning_field; },
          {{"reasoning_content", ReasoningField::kReasoningContent},
           {"reasoning", ReasoningField::kReasoning},
           {"both", ReasoningField::kBoth}}),
      SessionsRow(),
      {G::kServe, "--prefix-store", "SIZE",
       "space in the store of --sessions for prompts that were read, so that servers load them "
       "after a restart; or: off",
       ReadPrefixStore,
       [](const CliOptions& o) {
         return fmt::format("{}MiB", o.Of<ServeInput>().server.prefix_store.most_bytes >> 20);
       }},
      WholeRow("--checkpoint-every", "N",
               "tokens of an answer within a session, after which it is saved while it is "
               "generated, so that another server can continue it; 0: only at its end",
               [](CliOptions& o) { return &o.Of<ServeInput>().server.keeping.checkpoint_every; },
               {.min = 0, .max = 1000000}),
      WholeRow("--session-idle", "S", "seconds that a session stays in memory for its next request",
               [](CliOptions& o) { return &o.Of<ServeInput>().server.keeping.idle; },
               {.min = 0, .max = 1000000}),
      WholeRow("--session-lifetime", "S",
               "seconds that a session, or a stored prompt, stays in the store without being used",
               [](CliOptions& o) { return &o.Of<ServeInput>().server.keeping.lifetime; },
               {.min = 1, .max = 1000000000}),
      WholeRow("--session-lease", "S",
               "seconds after which another server may continue the answers of a server that died",
               [](CliOptions& o) { return &o.Of<ServeInput>().server.keeping.limits.lease; },
               {.min = 1, .max = 3600}),
  };
  table->insert(table->end(), rows.begin(), rows.end());
}

}  // namespace ebb::cli
