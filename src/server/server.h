// `ebb serve` as a part of a program: an HTTP server of OpenAI's interface on one model. Its
// threads: connections, the engine, those that parse and tokenize (WorkLanes), so that neither of
// the others waits for a long prompt, and that of the access log.
//
// Thread safety: all members may be called from any thread, but for construction and destruction.
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
  // Sockets that listen already, which take the place of host and port; empty: none.
  std::vector<int> sockets;
  std::shared_ptr<const KeyRing> keys;    // null: every client that can connect may ask
  std::vector<std::string> cors_origins;  // see Gate
  // By what names it may be called, see Gate, where it listens on this machine alone.
  std::vector<std::string> allowed_hosts;
  std::string model_file;                 // its name, without a folder; for /props
  std::shared_ptr<AccessLog> access_log;  // null: requests are not logged
  HttpLimits http;
  DriverOptions driver;
  MetricsAlias metrics_alias = MetricsAlias::kNone;
  DashboardMode dashboard = DashboardMode::kFigures;
  ChatPageMode chat_page = ChatPageMode::kOn;
  ReasoningField reasoning_field = ReasoningField::kReasoningContent;
  // Bytes of JSON that may be kept of responses, which can be asked for and gone on with by id.
  size_t response_store_bytes = size_t{64} << 20;
  // The store of sessions; nothing: there are no sessions.
  std::optional<store::StoreUrl> sessions = {};
  SessionKeeperOptions keeping = {};
  // Prompts in the same store; needs `sessions` and a prefix cache.
  PrefixStoreOptions prefix_store = {};
  // Defaults of a request's fields; the engine's options are those of `engine`.
  RequestDefaults defaults;
};

class Server {
 public:
  // Listens when it returns. Errors: those of Engine::Create(), Engine::OpenSession() with the
  // defaults, ShareTiers(), store::OpenStore(), HttpServer::Listen() and HttpServer::Adopt().
  static Result<std::unique_ptr<Server>> Start(std::shared_ptr<const Model> model,
                                               const ServerOptions& options);
  // Requests that are not answered yet end with an error.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // From now on requests come with one of these keys.
  void SetKeys(std::shared_ptr<const KeyRing> keys);
  // Stops taking requests: new ones are refused, those that run are answered.
  void Drain();
  // Nothing is left to be answered.
  [[nodiscard]] bool is_drained() const;

  // "127.0.0.1:8080", "[::1]:8080", "unix:/path"; several where a host has several addresses.
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
