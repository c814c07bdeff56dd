// Invariant: `running`, exchanges and replies belong to the thread of connections. The engine's
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
#include "src/server/access/router.h"
#include "src/server/api/api.h"
#include "src/server/api/openai/exchange.h"
#include "src/server/monitoring/dashboard.h"
#include "src/server/server.h"
#include "src/server/sessions/session_turn.h"
#include "src/server/work_lanes.h"

namespace ebb::server {

inline HttpAnswer JsonAnswer(const Json& json) { return {.body = Dump(json)}; }

// A request that the engine answers, from its body to the last byte of its answer. It belongs to
// one thread at a time: that of connections, or one of the lanes that reads and prepares it.
struct ServedRequest {
  Api api = Api::kChat;
  HttpRequest http;  // until `completion` is read
  std::shared_ptr<Reply> reply;
  std::shared_ptr<Gate::Ticket> ticket;
  std::string request_id = {};               // as its client calls it, or empty
  std::string client = {};                   // see WorkLanes::Task
  std::shared_ptr<AccessLine> line = {};     // null: there is no access log
  CompletionRequest completion = {};         // until `exchange` has it
  std::shared_ptr<SessionUse> session = {};  // null: none
  std::vector<Job> jobs = {};                // until the engine has them
  // While it is answered:
  std::vector<JobId> job_ids = {};
  std::unique_ptr<Exchange> exchange = {};
  Headers headers = {};
  bool has_begun = false;  // its stream
  bool is_over = false;    // the client has its answer, or has gone
};
using Served = std::shared_ptr<ServedRequest>;

// Who takes turns with others: a key's owner, or an address.
inline std::string ClientOf(const HttpRequest& request) {
  return request.key == nullptr ? request.remote : TenantOf(request.key);
}

struct Server::Impl {
  using Compute = std::function<HttpAnswer(const Json& body)>;

  [[nodiscard]] std::vector<Route> MakeRoutes();
  // Add the routes of requests for the engine, of the model with its tokens and its template, and
  // of the server's state.
  void AddCompletionRoutes(std::vector<Route>* routes);
  void AddModelRoutes(std::vector<Route>* routes);
  void AddServerRoutes(std::vector<Route>* routes);
  [[nodiscard]] HttpServer::Handler MakeHandler();
  [[nodiscard]] std::optional<HttpAnswer> Admit(HttpRequest* request);
  // The line of the access log for `request`; null: there is no log.
  [[nodiscard]] static std::shared_ptr<AccessLine> LineOf(const HttpRequest& request) {
    return std::static_pointer_cast<AccessLine>(request.watcher);
  }
  // The headers of every answer to `request`.
  [[nodiscard]] Headers HeadersFor(const HttpRequest& request) const;
  // With the headers of every answer to `request`, and as its interface tells errors.
  [[nodiscard]] HttpAnswer WithErrorForm(const HttpRequest& request, HttpAnswer answer) const;
  void Handle(HttpRequest request, std::shared_ptr<Reply> reply);
  // Runs `compute` on a thread of `lanes`, on the body's JSON.
  void Work(HttpRequest request, std::shared_ptr<Reply> reply, Compute compute);
  void Complete(Api api, HttpRequest request, std::shared_ptr<Reply> reply);
  // Reads the body. On a thread of `lanes`, as Prepare() is.
  [[nodiscard]] ApiResult<CompletionRequest> ReadBody(const ServedRequest& served) const;
  void Prepare(const Served& served);
  // Has Prepare() run on a lane.
  void AddPrepare(const Served& served);
  // Prepares a request that continues without the session that its hint names.
  void PrepareWithoutSession(const Served& served);
  // Waits for the session of a request, prepares, and submits.
  void EnterSession(const Served& served);
  void PrepareInSession(const Served& served);
  void SubmitTurn(const Served& served);
  // Gives the jobs to the engine.
  void Submit(const Served& served);
  void Await(const Served& served);
  // Answers with an error, from any thread, once the ticket is given back: its key may be allowed
  // one request at a time.
  void Refuse(const Served& served, HttpAnswer answer);
  [[nodiscard]] Status OpenSessions();
  // Returns null if prompts are not stored.
  [[nodiscard]] Result<std::shared_ptr<PrefixStore>> OpenPrefixStore(const Engine& engine) const;
  // Stored responses, by their id.
  [[nodiscard]] HttpAnswer GetResponse(const std::string& id);
  [[nodiscard]] HttpAnswer GetResponseInput(const std::string& id);
  [[nodiscard]] HttpAnswer DeleteResponse(const std::string& id);
  // A response that is being made.
  [[nodiscard]] HttpAnswer CancelResponse(const std::string& id);
  // DELETE /v1/requests/ID
  [[nodiscard]] HttpAnswer CancelRequest(const HttpRequest& request, const std::string& id);
  // POST /v1/chat/completions/control
  [[nodiscard]] HttpAnswer Control(const HttpRequest& request);
  // Requests that are being answered and called `id`, of those that who asks may see.
  [[nodiscard]] std::vector<Served> FindRequests(const HttpRequest& request,
                                                 std::string_view id) const;
  void Take(std::vector<JobUpdate> updates);
  void Advance(const Served& served);
  // Ends a request for its client, and cancels those of its jobs that still run.
  void End(ServedRequest* served);
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
  // GET /v1/models/NAME
  [[nodiscard]] HttpAnswer GetModel(const std::string& name) const;
  [[nodiscard]] HttpAnswer Tokenize(const Json& body) const;
  [[nodiscard]] HttpAnswer Detokenize(const Json& body) const;
  [[nodiscard]] HttpAnswer ApplyTemplate(const Json& body) const;
  // Write the answers to llama-server's GET /props and GET /slots.
  [[nodiscard]] Json Props() const;
  [[nodiscard]] Json Slots() const;
  // Writes what a request may ask for in its object `ebb`, and what holds where it does not.
  [[nodiscard]] Json OwnProps() const;
  // Returns the context size of a request that asks for none.
  [[nodiscard]] int Context() const;
  // Answers with the tokens of the prompt in a body.
  [[nodiscard]] HttpAnswer CountPrompt(Api api, const Json& body) const;

  std::shared_ptr<const Model> model;
  ServerOptions options;
  std::string fingerprint;
  int64_t started = 0;
  bool thinks = false;  // the template asks the model for a thought
  uint64_t run_id = 0;  // so that ids of answers differ from run to run
  std::unique_ptr<Router> router;
  std::unique_ptr<Gate> gate;
  // The jobs that the engine has, whether a client still waits for them or not: each is a choice.
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
