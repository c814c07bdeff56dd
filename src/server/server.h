// Server is `ebb serve` as a part of a program: an HTTP server of OpenAI's API on one model. It has
// a thread for connections, one for the engine, several that parse and tokenize (WorkLanes), so
// that neither of the others waits for a long prompt, and one for the access log.
//
// Thread safety: all members may be called from any thread, except for construction and
// destruction.
#ifndef EBB_SERVER_SERVER_H_
#define EBB_SERVER_SERVER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ebb/engine.h"
#include "ebb/model.h"
#include "ebb/status.h"
#include "src/server/access/access_log.h"
#include "src/server/access/api_keys.h"
#include "src/server/api/openai/reasoning_field.h"
#include "src/server/api/openai/request.h"
#include "src/server/chat/chat_page.h"
#include "src/server/engine/driver.h"
#include "src/server/http/http_server.h"
#include "src/server/monitoring/dashboard_mode.h"
#include "src/server/monitoring/metrics.h"
#include "src/server/sessions/session_keeper.h"
#include "src/store/store_url.h"

namespace ebb::server {

struct ServerOptions {
  std::string host = "127.0.0.1";  // or "unix:/path"
  uint16_t port = 8080;            // 0: a free one
  // Holds sockets that listen already and replace host and port; empty: none.
  std::vector<int> sockets;
  std::shared_ptr<const KeyRing> keys;    // null: no key is needed
  std::vector<std::string> cors_origins;  // see Gate
  // Lists further names by which the server may be called if it listens on this machine only; see
  // Gate.
  std::vector<std::string> allowed_hosts;
  std::string model_file;                 // file name without folder, for /props
  std::shared_ptr<AccessLog> access_log;  // null: requests are not logged
  HttpLimits http;
  DriverOptions driver;
  MetricsAlias metrics_alias = MetricsAlias::kNone;
  DashboardMode dashboard = DashboardMode::kFigures;
  ChatPageMode chat_page = ChatPageMode::kOn;
  ReasoningField reasoning_field = ReasoningField::kReasoningContent;
  // Limits the bytes of JSON of stored responses, which clients can get and continue by id.
  size_t response_store_bytes = size_t{64} << 20;
  // Names the store of sessions; nothing: there are no sessions.
  std::optional<store::StoreUrl> sessions = {};
  SessionKeeperOptions keeping = {};
  // Configures the prompts stored in the same store; needs `sessions` and a prefix cache.
  PrefixStoreOptions prefix_store = {};
  // Holds the defaults of a request's fields. `defaults.engine` also holds the engine's options.
  RequestDefaults defaults;
};

class Server {
 public:
  // Starts a server, which listens when the call returns. Errors: those of Engine::Create(),
  // Engine::OpenSession() with the defaults, ShareTiers(), store::OpenStore(), HttpServer::Listen()
  // and HttpServer::Adopt().
  static Result<std::unique_ptr<Server>> Start(std::shared_ptr<const Model> model,
                                               const ServerOptions& options);
  // Ends requests that are not answered yet with an error.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Replaces the API keys.
  void SetKeys(std::shared_ptr<const KeyRing> keys);
  // Refuses new requests; running ones are answered.
  void Drain();
  // Returns whether Drain() was called and no answer is under way.
  [[nodiscard]] bool is_drained() const;

  // Returns the addresses, several if the host has several: "127.0.0.1:8080", "[::1]:8080",
  // "unix:/path".
  [[nodiscard]] std::vector<std::string> addresses() const;
  [[nodiscard]] uint16_t port() const;
  [[nodiscard]] Figures figures() const;

 private:
  Server();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_SERVER_H_
