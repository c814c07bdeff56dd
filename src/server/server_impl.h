// Invariant: `pending`, exchanges and replies belong to the thread of connections. The engine's
// thread and those of `lanes` send what they have by HttpServer::Post().
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

#include "src/server/access/access_line.h"
#include "src/server/access/gate.h"
#include "src/server/api/api.h"
#include "src/server/api/openai/exchange.h"
#include "src/server/monitoring/dashboard.h"
#include "src/server/server.h"
#include "src/server/sessions/session_turn.h"
#include "src/server/work_lanes.h"

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
  std::shared_ptr<AccessLine> line;  // null: there is no access log
};

// Who sent a request, and how they call it.
struct Asker {
  std::shared_ptr<Gate::Ticket> ticket;
  std::string request_id;
  std::string client;  // see WorkLanes::Task
  std::shared_ptr<AccessLine> line;
};

// A job that the engine has, whether a client still waits for it or not.
struct RunningJob {
  std::shared_ptr<Gate::Ticket> ticket;
  std::shared_ptr<AccessLine> line;
  bool is_first = true;  // of the choices of its prompt
};

// A request made from a body, before the engine gets it.
struct PreparedRequest {
  Api interface = Api::kChat;
  Asker asker;
  Prepared prepared;
  ExchangeOptions exchange;
  std::vector<std::string> ignored;
  ToolPaths tool_paths;
  std::map<std::string, std::string> argument_fields;  // of the template, as the client calls them
  ApiRequest api;                                      // whose body has been read
  // Until `prepared` is made of it; with a session that waits for its record.
  std::optional<CompletionRequest> completion = {};
};

// Returns the name of the tenant, whose sessions and prompts are kept apart from other tenants'.
inline std::string TenantOf(const std::shared_ptr<const ApiKey>& key) {
  return key == nullptr ? "" : key->name;
}

// Who takes turns with others: a key's owner, or an address.
inline std::string ClientOf(const HttpRequest& request) {
  return request.key == nullptr ? request.remote : TenantOf(request.key);
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
  // The line of the access log for `request`; null: there is no log.
  [[nodiscard]] static std::shared_ptr<AccessLine> LineOf(const HttpRequest& request) {
    return std::static_pointer_cast<AccessLine>(request.watcher);
  }
  // The headers of every answer to `request`.
  [[nodiscard]] Headers HeadersFor(const HttpRequest& request) const;
  // With the headers of every answer to `request`, and as its interface tells errors.
  [[nodiscard]] HttpAnswer InItsForm(const HttpRequest& request, HttpAnswer answer) const;
  void Handle(HttpRequest request, std::shared_ptr<Reply> reply);
  // Runs `compute` on a thread of `lanes`, on the body's JSON.
  void Work(HttpRequest request, std::shared_ptr<Reply> reply, Compute compute);
  void Complete(Api api, HttpRequest request, std::shared_ptr<Reply> reply);
  // On a thread of `lanes`, as PrepareRead() is: its result has a `completion`.
  [[nodiscard]] ApiResult<PreparedRequest> ReadBody(Api api, const HttpRequest& http, Asker asker);
  void PrepareRead(const std::shared_ptr<PreparedRequest>& request,
                   const std::shared_ptr<Reply>& reply);
  void Submit(PreparedRequest request, const std::shared_ptr<Reply>& reply,
              const std::shared_ptr<SessionUse>& use);
  // A request with a session: waits for it, prepares, and submits.
  // Has PrepareRead() run on a lane.
  void AddPrepare(const std::shared_ptr<PreparedRequest>& request,
                  const std::shared_ptr<Reply>& reply);
  // Prepares a request that goes on without the session that its hint names.
  void PrepareWithoutSession(const std::shared_ptr<PreparedRequest>& request,
                             const std::shared_ptr<Reply>& reply);
  void EnterSession(const std::shared_ptr<PreparedRequest>& request,
                    const std::shared_ptr<Reply>& reply);
  void SubmitTurn(PreparedRequest request, ApiResult<Prepared> turn,
                  const std::shared_ptr<Reply>& reply, const std::shared_ptr<SessionUse>& use);
  std::shared_ptr<Pending> Await(PreparedRequest request, std::vector<JobId> ids,
                                 const std::shared_ptr<Reply>& reply);
  [[nodiscard]] Status OpenSessions();
  // Returns null if prompts are not stored.
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
  // Drops its jobs, including those that still run: no request owns them any more.
  void Forget(const Pending& request);
  // Whether a request with a body of JSON is taken; else it is answered.
  bool TakesBody(const HttpRequest& request, Reply* reply);
  // Runs `run` on the lane for so many bytes of text. Where that is full or the server is stopping,
  // `refuse` is called on the thread of connections instead.
  void AddWork(const std::string& client, size_t bytes, std::function<void()> run,
               std::function<void(HttpAnswer)> refuse);
  [[nodiscard]] ApiError Overloaded(std::string message) const;

  // For /metrics; empty: there is no access log.
  [[nodiscard]] std::string AccessLogMetrics() const;
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
  // Writes what a request may ask for in its object `ebb`, and what holds where it does not.
  [[nodiscard]] Json OwnProps() const;
  // Returns the context size of a request that asks for none.
  [[nodiscard]] int Context() const;
  // Tokens of the chat in the body of a request for one.
  [[nodiscard]] ApiResult<size_t> CountPrompt(const Json& body) const;

  std::shared_ptr<const Model> model;
  ServerOptions options;
  std::string fingerprint;
  int64_t started = 0;
  bool thinks = false;  // the template asks the model for a thought
  uint64_t run_id = 0;  // so that ids of answers differ from run to run
  std::vector<Route> routes;
  std::unique_ptr<Gate> gate;
  std::map<JobId, RunningJob> running;
  std::map<JobId, std::pair<std::shared_ptr<Pending>, size_t>> pending;
  JobId next_job = 1;
  uint64_t next_answer = 1;
  std::shared_ptr<ResponseStore> responses;
  std::unique_ptr<Dashboard> dashboard;
  std::unique_ptr<ChatPage> chat_page;
  std::atomic<bool> draining = false;
  std::atomic<bool> stopping = false;
  std::shared_ptr<PrefixStore> prefix_store;  // null: prompts are not stored
  std::unique_ptr<WorkLanes> lanes;
  std::unique_ptr<Driver> driver;
  std::unique_ptr<SessionKeeper> keeper;  // null: no sessions
  std::unique_ptr<HttpServer> http;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_SERVER_IMPL_H_
