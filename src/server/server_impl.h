// Server::Impl connects the parts of a server. Invariant: `running`, exchanges and replies belong
// to the thread of connections. The engine's thread and those of `lanes` send their results by
// HttpServer::Post().
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
#include "src/server/access/router.h"
#include "src/server/api/api.h"
#include "src/server/api/openai/exchange.h"
#include "src/server/api/token_reasons.h"
#include "src/server/monitoring/dashboard.h"
#include "src/server/server.h"
#include "src/server/sessions/session_turn.h"
#include "src/server/work_lanes.h"

namespace ebb::server {

inline HttpAnswer JsonAnswer(const Json& json) { return {.body = Dump(json)}; }

// ServedRequest is a request that the engine answers, from its body to the last byte of its answer.
// It belongs to one thread at a time: the thread of connections, or a lane that reads and prepares
// it.
struct ServedRequest {
  Api api = Api::kChat;
  HttpRequest http;  // valid until `completion` has been read
  std::shared_ptr<Reply> reply;
  std::shared_ptr<Gate::Ticket> ticket;
  std::string request_id = {};               // the client's id of the request, or empty
  std::string client = {};                   // see WorkLanes::Task
  std::shared_ptr<AccessLine> line = {};     // null: there is no access log
  CompletionRequest completion = {};         // valid until it is moved to `exchange`
  std::shared_ptr<SessionUse> session = {};  // null: none
  std::vector<Job> jobs = {};                // valid until they are moved to the engine
  // Holds the ids of the request's jobs while it is answered, as the members below.
  std::vector<JobId> job_ids = {};
  std::unique_ptr<Exchange> exchange = {};
  Headers headers = {};
  bool has_begun = false;  // the stream has begun
  bool is_over = false;    // the client has its answer or has disconnected
};
using Served = std::shared_ptr<ServedRequest>;

// Returns the client name by which requests are scheduled fairly: a key's owner, or an address.
inline std::string ClientOf(const HttpRequest& request) {
  return request.key == nullptr ? request.remote : TenantOf(request.key);
}

struct Server::Impl {
  using Compute = std::function<HttpAnswer(const Json& body)>;

  [[nodiscard]] std::vector<Route> MakeRoutes();
  // Adds the routes of requests for the engine. The next two functions add those of the model with
  // its tokens and template, and of the server's state.
  void AddCompletionRoutes(std::vector<Route>* routes);
  void AddModelRoutes(std::vector<Route>* routes);
  void AddServerRoutes(std::vector<Route>* routes);
  [[nodiscard]] HttpServer::Handler MakeHandler();
  [[nodiscard]] std::optional<HttpAnswer> Admit(HttpRequest* request);
  // Returns the access log's line for `request`; null: there is no log.
  [[nodiscard]] static std::shared_ptr<AccessLine> LineOf(const HttpRequest& request) {
    return std::static_pointer_cast<AccessLine>(request.watcher);
  }
  // Returns the headers of every answer to `request`.
  [[nodiscard]] Headers HeadersFor(const HttpRequest& request) const;
  // Returns `answer` with the headers of every answer to `request`, and with an error in the form
  // of the interface that was called.
  [[nodiscard]] HttpAnswer WithErrorForm(const HttpRequest& request, HttpAnswer answer) const;
  void Handle(HttpRequest request, std::shared_ptr<Reply> reply);
  // Runs `compute` on the body's JSON, on a thread of `lanes`, and sends its answer.
  void Work(HttpRequest request, std::shared_ptr<Reply> reply, Compute compute);
  void Complete(Api api, HttpRequest request, std::shared_ptr<Reply> reply);
  // Reads the body. This function and Prepare() run on a thread of `lanes`.
  [[nodiscard]] ApiResult<CompletionRequest> ReadBody(const ServedRequest& served) const;
  void Prepare(const Served& served);
  // Queues Prepare() on a lane.
  void AddPrepare(const Served& served);
  // Prepares a request without the session that its hint names.
  void PrepareWithoutSession(const Served& served);
  // Acquires the session of a request, prepares the request and submits its job.
  void EnterSession(const Served& served);
  void PrepareInSession(const Served& served);
  void SubmitTurn(const Served& served);
  // Submits the request's jobs to the engine.
  void Submit(const Served& served);
  void Await(const Served& served);
  // Answers with an error after releasing the ticket, since the key may allow one request at a
  // time. May be called from any thread.
  void Refuse(const Served& served, HttpAnswer answer);
  [[nodiscard]] Status OpenSessions();
  // Returns null if prompts are not stored.
  [[nodiscard]] Result<std::shared_ptr<PrefixStore>> OpenPrefixStore(const Engine& engine) const;
  // Answers GET /v1/responses/ID. The two functions below answer requests about a stored response
  // too.
  [[nodiscard]] HttpAnswer GetResponse(const std::string& id);
  [[nodiscard]] HttpAnswer GetResponseInput(const std::string& id);
  [[nodiscard]] HttpAnswer DeleteResponse(const std::string& id);
  // Cancels a response that is being generated.
  [[nodiscard]] HttpAnswer CancelResponse(const std::string& id);
  // Answers DELETE /v1/requests/ID.
  [[nodiscard]] HttpAnswer CancelRequest(const HttpRequest& request, const std::string& id);
  // Answers GET /v1/requests/ID/tokens/POSITION: why a token of the request's first choice is in
  // its tier.
  void ExplainToken(const HttpRequest& request, const std::shared_ptr<Reply>& reply,
                    const std::string& id);
  // Wraps a callback so that a result of the engine's thread reaches it on the thread of
  // connections.
  template <typename Tell>
  [[nodiscard]] auto Here(Tell tell) {
    return [this, tell = std::move(tell)](auto seen) {
      auto shared = std::make_shared<decltype(seen)>(std::move(seen));
      http->Post([shared, tell] { tell(std::move(*shared)); });
    };
  }
  // Calls Driver::Explain(), and `tell` on the thread of connections.
  void Explain(JobId job, Position position, TellReasons tell);
  // Answers POST /v1/chat/completions/control.
  [[nodiscard]] HttpAnswer Control(const HttpRequest& request);
  // Returns the requests being answered that have this id and that the sender of `request` may see.
  [[nodiscard]] std::vector<Served> FindRequests(const HttpRequest& request,
                                                 std::string_view id) const;
  void Take(std::vector<JobUpdate> updates);
  void Advance(const Served& served);
  // Ends a request for its client, and cancels those of its jobs that still run.
  void End(ServedRequest* served);
  // Returns whether a request with a body of JSON is accepted; answers with an error if it is not.
  bool TakesBody(const HttpRequest& request, Reply* reply);
  // Runs `run` on the lane for `bytes` of text. If that lane is full or the server is stopping,
  // calls `refuse` on the thread of connections instead.
  void AddWork(const std::string& client, size_t bytes, std::function<void()> run,
               std::function<void(HttpAnswer)> refuse);
  [[nodiscard]] ApiError Overloaded(std::string message) const;

  // Returns the access log's figures for /metrics; empty without an access log.
  [[nodiscard]] std::string AccessLogMetrics() const;
  void MakeDashboard();
  [[nodiscard]] Json ModelJson() const;
  // Answers GET /v1/models/NAME.
  [[nodiscard]] HttpAnswer GetModel(const std::string& name) const;
  [[nodiscard]] HttpAnswer Tokenize(const Json& body) const;
  [[nodiscard]] HttpAnswer Detokenize(const Json& body) const;
  [[nodiscard]] HttpAnswer ApplyTemplate(const Json& body) const;
  // Returns the answer to llama-server's GET /props; Slots() returns that to GET /slots.
  [[nodiscard]] Json Props() const;
  [[nodiscard]] Json Slots() const;
  // Returns what a request may ask for in its object `ebb`, with the defaults.
  [[nodiscard]] Json OwnProps() const;
  // Returns the context size of a request that asks for none.
  [[nodiscard]] int Context() const;
  // Answers with the number of tokens of the prompt in a body of `api`.
  [[nodiscard]] HttpAnswer CountPrompt(Api api, const Json& body) const;

  std::shared_ptr<const Model> model;
  ServerOptions options;
  std::string fingerprint;
  int64_t started = 0;
  bool thinks = false;  // the template makes the model think
  uint64_t run_id = 0;  // random, so that ids of answers differ from run to run
  std::unique_ptr<Router> router;
  std::unique_ptr<Gate> gate;
  // Holds the jobs that the engine has, whether or not a client still waits for them. Each job is
  // one choice of its request.
  std::map<JobId, std::pair<Served, size_t>> running;
  JobId next_job = 1;
  uint64_t next_answer = 1;
  std::shared_ptr<ResponseStore> responses;
  std::unique_ptr<Dashboard> dashboard;
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
