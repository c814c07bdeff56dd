// Invariant: `pending`, exchanges and replies belong to the thread of connections. The engine's
// thread and the one that prepares send what they have by HttpServer::Post().
#ifndef EBB_SERVER_SERVER_IMPL_H_
#define EBB_SERVER_SERVER_IMPL_H_

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/asio/thread_pool.hpp>

#include "src/server/access/gate.h"
#include "src/server/api/api.h"
#include "src/server/api/exchange.h"
#include "src/server/monitoring/dashboard.h"
#include "src/server/server.h"
#include "src/server/sessions/session_turn.h"

namespace ebb::server {

inline constexpr std::string_view kRequests = "/v1/requests/";

inline HttpAnswer JsonAnswer(const Json& json) { return {.body = Dump(json)}; }

// A request that is being answered by the engine.
struct Pending {
  std::unique_ptr<Exchange> exchange;
  std::shared_ptr<Reply> reply;
  std::vector<JobId> jobs;
  bool streams = false;
  bool has_begun = false;                     // its stream
  std::function<void(const Exchange&)> keep;  // see ApiRequest
  Headers headers;
  std::string id;          // of its answer
  std::string request_id;  // as its client calls it, or empty
  std::shared_ptr<Gate::Ticket> ticket;
};

// Who asked, and how they call it.
struct Asker {
  std::shared_ptr<Gate::Ticket> ticket;
  std::string request_id;
};

// What the preparing thread makes of a body.
struct PreparedRequest {
  Api interface = Api::kChat;
  Asker asker;
  Prepared prepared;
  ExchangeOptions exchange;
  std::vector<std::string> ignored;
  ApiRequest api;  // whose body has been read
  // With a session, whose record the rest waits for.
  std::optional<CompletionRequest> turn = {};
};

// Whose sessions and prompts are apart from others'.
inline std::string TenantOf(const std::shared_ptr<const ApiKey>& key) {
  return key == nullptr ? "" : key->name;
}

struct Server::Impl {
  using Compute = std::function<HttpAnswer(const Json& body)>;
  struct Route {
    std::string_view method;
    std::string_view path;
    std::function<void(HttpRequest, std::shared_ptr<Reply>)> handle;
    Access access = Access::kKey;
  };

  void MakeRoutes();
  [[nodiscard]] HttpServer::Handler MakeHandler();
  [[nodiscard]] std::optional<HttpAnswer> Admit(HttpRequest* request);
  // With the headers of every answer to `request`, and as its interface tells errors.
  [[nodiscard]] HttpAnswer InItsForm(const HttpRequest& request, HttpAnswer answer) const;
  void Handle(HttpRequest request, std::shared_ptr<Reply> reply);
  // Runs `compute` on the preparing thread, on the body's JSON.
  void Work(HttpRequest request, std::shared_ptr<Reply> reply, Compute compute);
  void Complete(Api api, HttpRequest request, std::shared_ptr<Reply> reply);
  [[nodiscard]] ApiResult<PreparedRequest> PrepareBody(Api api, const HttpRequest& http,
                                                       Asker asker);
  void Submit(PreparedRequest request, const std::shared_ptr<Reply>& reply,
              const std::shared_ptr<SessionUse>& use);
  // A request with a session: waits for it, prepares, and submits.
  void EnterSession(const std::shared_ptr<PreparedRequest>& request,
                    const std::shared_ptr<Reply>& reply);
  void SubmitTurn(PreparedRequest request, ApiResult<PreparedTurn> turn,
                  const std::shared_ptr<Reply>& reply, const std::shared_ptr<SessionUse>& use);
  std::shared_ptr<Pending> Await(PreparedRequest request, std::vector<JobId> ids,
                                 const std::shared_ptr<Reply>& reply);
  [[nodiscard]] Status OpenSessions();
  // Null where prompts are not stored.
  [[nodiscard]] Result<std::shared_ptr<PrefixStore>> OpenPrefixStore(const Engine& engine) const;
  // Responses by their id; `path` is what follows "/v1/responses/".
  [[nodiscard]] HttpAnswer AnswerResponse(std::string_view method, std::string path);
  [[nodiscard]] HttpAnswer CancelResponse(const std::string& id);
  // DELETE /v1/requests/ID
  [[nodiscard]] HttpAnswer CancelRequest(const HttpRequest& request);
  // POST /v1/chat/completions/control
  [[nodiscard]] HttpAnswer Control(const HttpRequest& request);
  // Requests that are being answered and called `id`, of those that who asks may see.
  [[nodiscard]] std::vector<std::shared_ptr<Pending>> FindRequests(const HttpRequest& request,
                                                                   std::string_view id) const;
  void Take(std::vector<JobUpdate> updates);
  void Advance(const std::shared_ptr<Pending>& request);
  // Its jobs, those that still run among them, are nobody's any more.
  void Forget(const Pending& request);
  // False: too much is being prepared; it is answered.
  bool BeginPreparing(const HttpRequest& request, Reply* reply);
  [[nodiscard]] ApiError Overloaded(std::string message) const;

  void MakeDashboard();
  [[nodiscard]] Json ModelJson() const;
  [[nodiscard]] HttpAnswer Tokenize(const Json& body) const;
  [[nodiscard]] HttpAnswer Detokenize(const Json& body) const;
  [[nodiscard]] HttpAnswer ApplyTemplate(const Json& body) const;
  [[nodiscard]] HttpAnswer CountTokens(const Json& body) const;
  [[nodiscard]] HttpAnswer CountInput(const Json& body) const;
  [[nodiscard]] HttpAnswer CountChat(const Json& body) const;
  // Write the answers to llama-server's GET /props and GET /slots.
  [[nodiscard]] Json Props() const;
  [[nodiscard]] Json Slots() const;
  // Returns the context size of a request that asks for none.
  [[nodiscard]] int Context() const;
  // Tokens of the chat in the body of a request for one.
  [[nodiscard]] ApiResult<size_t> CountPrompt(const Json& body) const;

  std::shared_ptr<const Model> model;
  ServerOptions options;
  std::string fingerprint;
  int64_t started = 0;
  uint64_t run_id = 0;  // so that ids of answers differ from run to run
  std::vector<Route> routes;
  std::unique_ptr<Gate> gate;
  // Tickets of jobs that the engine has, also where nobody waits for them any more.
  std::map<JobId, std::shared_ptr<Gate::Ticket>> tickets;
  std::map<JobId, std::pair<std::shared_ptr<Pending>, size_t>> pending;
  JobId next_job = 1;
  uint64_t next_answer = 1;
  std::shared_ptr<ResponseStore> responses;
  std::unique_ptr<Dashboard> dashboard;
  size_t num_preparing = 0;
  std::atomic<bool> draining = false;
  std::atomic<bool> stopping = false;
  boost::asio::thread_pool preparing{1};
  std::shared_ptr<PrefixStore> prefix_store;  // null: prompts are not stored
  std::unique_ptr<Driver> driver;
  std::unique_ptr<SessionKeeper> keeper;  // null: no sessions
  std::unique_ptr<HttpServer> http;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_SERVER_IMPL_H_
