// `ebb serve` as a part of a program: an HTTP server of OpenAI's interface on one model. Three
// threads: connections, the engine, and one that parses and tokenizes, so that neither of the
// others waits for a long prompt.
//
// Thread safety: all members may be called from any thread, but for construction and destruction.
#ifndef EBB_SERVER_SERVER_H_
#define EBB_SERVER_SERVER_H_

#include <cstdint>
#include <memory>
#include <string>

#include "ebb/engine.h"
#include "ebb/model.h"
#include "ebb/status.h"
#include "src/server/driver.h"
#include "src/server/http_server.h"
#include "src/server/metrics.h"
#include "src/server/request.h"

namespace ebb::server {

struct ServerOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;  // 0: a free one
  HttpLimits http;
  DriverOptions driver;
  MetricsAlias metrics_alias = MetricsAlias::kNone;
  // What holds where a request says nothing; the engine's options are those of `engine`.
  RequestDefaults defaults;
};

class Server {
 public:
  // Listens when it returns. Errors: those of Engine::Create(), Engine::OpenSession() with the
  // defaults, ShareTiers() and HttpServer::Listen().
  static Result<std::unique_ptr<Server>> Start(std::shared_ptr<const Model> model,
                                               const ServerOptions& options);
  // Requests that are not answered yet end with an error.
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  [[nodiscard]] std::string address() const;  // "127.0.0.1:8080"
  [[nodiscard]] uint16_t port() const;
  [[nodiscard]] Figures figures() const;

 private:
  Server();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_SERVER_H_
