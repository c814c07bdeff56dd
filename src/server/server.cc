// Invariant: `pending`, exchanges and replies belong to the thread of connections. The engine's
// thread and the one that prepares send what they have by HttpServer::Post().
#include "src/server/server.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <functional>
#include <future>
#include <map>
#include <random>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include "ebb/conversation.h"
#include "src/server/api.h"
#include "src/server/dashboard.h"
#include "src/server/exchange.h"
#include "src/server/gate.h"
#include "src/server/json_fields.h"
#include "src/server/messages_exchange.h"
#include "src/server/messages_request.h"
#include "src/server/open_api.h"
#include "src/server/session_routes.h"
#include "src/server/session_turn.h"

namespace ebb::server {
namespace {

constexpr std::string_view kRequests = "/v1/requests/";

HttpAnswer JsonAnswer(const Json& json) { return {.body = Dump(json)}; }

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

// Whose sessions and prompts are apart from others'.
std::string TenantOf(const std::shared_ptr<const ApiKey>& key) {
  return key == nullptr ? "" : key->name;
}

// retry_after: in seconds, where another server may take it, or the one that comes after this.
ApiError StoppingError(std::optional<double> retry_after = {}) {
  return {.status = 503,
          .message = "the server is stopping",
          .code = "stopping",
          .retry_after = retry_after};
}

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

// How a request is answered, once it is prepared.
void Describe(Prepared prepared, PreparedRequest* request) {
  request->prepared = std::move(prepared);
  ExchangeOptions& exchange = request->exchange;
  const std::vector<Job>& jobs = request->prepared.jobs;
  exchange.num_choices = std::max<size_t>(1, jobs.size());
  for (size_t i = 0; i < jobs.size(); i += exchange.choices_per_prompt) {
    exchange.prompt_tokens += jobs[i].prompt.size();
  }
  exchange.prompt = request->prepared.prompt;
  exchange.calls = request->prepared.may_call ? Calls::kParsed : Calls::kNone;
  exchange.first_call = request->prepared.num_calls;
}

bool IsJson(std::string_view content_type) {
  const std::string_view type = content_type.substr(0, content_type.find(';'));
  constexpr std::string_view kJson = "application/json";
  return std::ranges::equal(
      type.substr(0, type.find_last_not_of(' ') + 1), kJson,
      [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + ('a' - 'A') : a) == b; });
}

ApiError NoJson() {
  return {.status = 415,
          .message = "expected a Content-Type of application/json",
          .code = "unsupported_media_type"};
}

// Header fields hold one line of plain characters.
std::string InHeader(const std::vector<std::string>& names) {
  std::string text = fmt::format("{}", fmt::join(names, ", "));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  constexpr size_t kMost = 1000;
  text.resize(std::min(text.size(), kMost));
  return text;
}

}  // namespace

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
  std::unique_ptr<Driver> driver;
  std::unique_ptr<SessionKeeper> keeper;  // null: no sessions
  std::unique_ptr<HttpServer> http;
};

void Server::Impl::MakeRoutes() {
  const auto at_once = [](std::function<HttpAnswer()> answer) {
    return [answer = std::move(answer)](const HttpRequest&, const std::shared_ptr<Reply>& reply) {
      reply->Send(answer());
    };
  };
  const auto work = [this](HttpAnswer (Impl::*compute)(const Json&) const) {
    return [this, compute](HttpRequest request, std::shared_ptr<Reply> reply) {
      Work(std::move(request), std::move(reply),
           [this, compute](const Json& body) { return (this->*compute)(body); });
    };
  };
  const auto complete = [this](Api api) {
    return [this, api](HttpRequest request, std::shared_ptr<Reply> reply) {
      Complete(api, std::move(request), std::move(reply));
    };
  };
  const auto healthy = at_once([] { return JsonAnswer({{"status", "ok"}}); });
  const auto ready = at_once([this] {
    HttpAnswer answer = JsonAnswer({{"status", draining ? "stopping" : "ok"}});
    if (draining) answer.status = 503;
    return answer;
  });
  const auto control = [this](const HttpRequest& request, const std::shared_ptr<Reply>& reply) {
    reply->Send(Control(request));
  };
  const auto models = at_once([this] {
    return JsonAnswer({{"object", "list"}, {"data", Json::array({ModelJson()})}});
  });
  const auto metrics = at_once([this] {
    return HttpAnswer{
        .content_type = "text/plain; version=0.0.4; charset=utf-8",
        .body = MetricsText(driver->figures(), http->num_connections(), options.metrics_alias) +
                (keeper != nullptr ? keeper->MetricsText() : "")};
  });
  const auto open_api = at_once(
      [] { return HttpAnswer{.content_type = "application/yaml", .body = std::string(kOpenApi)}; });
  const auto missing = at_once([] {
    return ErrorAnswer({.status = 501,
                        .message = "not supported; there are /v1/chat/completions, "
                                   "/v1/completions, /v1/responses and /v1/messages",
                        .code = "unsupported_endpoint"});
  });
  routes = {{"GET", "/health", ready, Access::kOpen},
            {"GET", "/health/live", healthy, Access::kOpen},
            {"GET", "/health/ready", ready, Access::kOpen},
            {"GET", "/metrics", metrics, Access::kAdmin},
            {"GET", "/openapi.yaml", open_api, Access::kOpen},
            {"GET", "/v1/models", models},
            {"POST", "/v1/chat/completions", complete(Api::kChat)},
            {"POST", "/chat/completions", complete(Api::kChat)},
            {"POST", "/v1/chat/completions/control", control},
            {"POST", "/v1/completions", complete(Api::kText)},
            {"POST", "/tokenize", work(&Impl::Tokenize)},
            {"POST", "/detokenize", work(&Impl::Detokenize)},
            {"POST", "/apply-template", work(&Impl::ApplyTemplate)},
            {"POST", "/v1/responses", complete(Api::kResponses)},
            {"POST", "/v1/messages", complete(Api::kMessages)},
            {"POST", "/v1/messages/count_tokens", work(&Impl::CountTokens)},
            {"POST", "/v1/embeddings", missing}};
}

HttpServer::Handler Server::Impl::MakeHandler() {
  return {.admit = [this](HttpRequest* request) { return Admit(request); },
          .handle =
              [this](HttpRequest request, std::shared_ptr<Reply> reply) {
                Handle(std::move(request), std::move(reply));
              },
          .refuse =
              [this](int status, std::string_view message) {
                HttpAnswer answer = ErrorAnswer({.status = status,
                                                 .message = std::string(message),
                                                 .code = status == 413   ? "body_too_large"
                                                         : status == 431 ? "header_too_large"
                                                         : status == 408 ? "request_timeout"
                                                         : status == 503 ? "queue_full"
                                                                         : "bad_request"});
                if (status == 503) answer.headers.emplace_back("Retry-After", "1");
                for (auto& header : gate->HeadersFor({})) answer.headers.push_back(header);
                return answer;
              }};
}

std::optional<HttpAnswer> Server::Impl::Admit(HttpRequest* request) {
  if (gate->Preflight(*request).has_value()) return std::nullopt;
  const auto route = std::ranges::find_if(routes, [&](const Route& candidate) {
    return candidate.path == request->path && candidate.method == request->method;
  });
  const Access access = route == routes.end() ? Dashboard::AccessTo(request->path) : route->access;
  const std::optional<ApiError> error = gate->Admit(access, request);
  if (!error.has_value()) return std::nullopt;
  HttpAnswer answer = ErrorAnswer(*error);
  if (error->status == 401) answer.headers.emplace_back("WWW-Authenticate", "Bearer");
  for (auto& header : gate->HeadersFor(*request)) answer.headers.push_back(header);
  return answer;
}

void Server::Impl::Handle(HttpRequest request, std::shared_ptr<Reply> reply) {
  reply = Gate::WithHeaders(std::move(reply), gate->HeadersFor(request));
  if (auto preflight = gate->Preflight(request)) return reply->Send(*std::move(preflight));
  if (request.path.starts_with("/v1/messages")) reply = WithMessagesErrors(std::move(reply));
  if (stopping) {
    return reply->Send(ErrorAnswer(StoppingError()));
  }
  constexpr std::string_view kModels = "/v1/models/";
  if (request.method == "GET" && request.path.starts_with(kModels)) {
    if (request.path.substr(kModels.size()) == options.defaults.model_id) {
      return reply->Send(JsonAnswer(ModelJson()));
    }
    return reply->Send(ErrorAnswer({.status = 404,
                                    .message = fmt::format("there is no such model; this server "
                                                           "has \"{}\"",
                                                           options.defaults.model_id),
                                    .code = "model_not_found",
                                    .param = "model"}));
  }
  if (request.method == "GET" && dashboard->Answer(request.path, reply)) return;
  constexpr std::string_view kResponses = "/v1/responses/";
  if (request.path.starts_with(kResponses)) {
    return reply->Send(AnswerResponse(request.method, request.path.substr(kResponses.size())));
  }
  if (request.method == "DELETE" && request.path.starts_with(kRequests)) {
    return reply->Send(CancelRequest(request));
  }
  if (IsSessionPath(request.path)) {
    return RouteSession(keeper.get(), TenantOf(request.key), request, reply);
  }
  std::vector<std::string_view> methods;
  for (const Route& route : routes) {
    if (route.path != request.path) continue;
    if (route.method == request.method) return route.handle(std::move(request), reply);
    methods.push_back(route.method);
  }
  if (methods.empty()) {
    return reply->Send(ErrorAnswer({.status = 404,
                                    .message = fmt::format("there is nothing at {}", request.path),
                                    .code = "not_found"}));
  }
  HttpAnswer answer =
      ErrorAnswer({.status = 405,
                   .message = fmt::format("{} takes {}", request.path, fmt::join(methods, ", ")),
                   .code = "method_not_allowed"});
  answer.headers.emplace_back("Allow", fmt::format("{}", fmt::join(methods, ", ")));
  reply->Send(std::move(answer));
}

ApiError Server::Impl::Overloaded(std::string message) const {
  const double wait = std::max(1.0, driver->figures().predicted_wait);
  return {.status = 503, .message = std::move(message), .code = "queue_full", .retry_after = wait};
}

bool Server::Impl::BeginPreparing(const HttpRequest& request, Reply* reply) {
  if (draining) {
    reply->Send(ErrorAnswer(StoppingError(/*retry_after=*/1)));
    return false;
  }
  if (!IsJson(request.content_type)) {
    reply->Send(ErrorAnswer(NoJson()));
    return false;
  }
  if (num_preparing >= options.driver.most_waiting) {
    reply->Send(ErrorAnswer(Overloaded("too many requests are being read")));
    return false;
  }
  ++num_preparing;
  return true;
}

void Server::Impl::Work(HttpRequest request, std::shared_ptr<Reply> reply, Compute compute) {
  if (!BeginPreparing(request, reply.get())) return;
  boost::asio::post(preparing, [this, request = std::move(request), reply = std::move(reply),
                                compute = std::move(compute)]() mutable {
    ApiResult<Json> body = ParseObject(request.body);
    const auto* error = std::get_if<ApiError>(&body);
    HttpAnswer answer = error != nullptr ? ErrorAnswer(*error) : compute(std::get<Json>(body));
    http->Post([this, answer = std::move(answer), reply = std::move(reply)] {
      --num_preparing;
      reply->Send(answer);
    });
  });
}

void Server::Impl::Complete(Api api, HttpRequest request, std::shared_ptr<Reply> reply) {
  if (!BeginPreparing(request, reply.get())) return;
  ApiResult<std::shared_ptr<Gate::Ticket>> ticket = gate->Enter(request);
  reply = Gate::WithHeaders(std::move(reply), gate->LimitHeaders(request));
  if (const auto* error = std::get_if<ApiError>(&ticket)) {
    --num_preparing;
    return reply->Send(ErrorAnswer(*error));
  }
  const std::string_view id = request.header("x-request-id");
  Asker asker = {.ticket = std::get<std::shared_ptr<Gate::Ticket>>(std::move(ticket)),
                 .request_id = IsRequestId(id) ? std::string(id) : ""};
  boost::asio::post(preparing, [this, api, request = std::move(request), asker = std::move(asker),
                                reply = std::move(reply)]() mutable {
    auto result =
        std::make_shared<ApiResult<PreparedRequest>>(PrepareBody(api, request, std::move(asker)));
    http->Post([this, result, reply = std::move(reply)]() mutable {
      --num_preparing;
      if (const auto* error = std::get_if<ApiError>(&*result)) {
        return reply->Send(ErrorAnswer(*error));
      }
      auto& prepared = std::get<PreparedRequest>(*result);
      if (!prepared.turn.has_value()) return Submit(std::move(prepared), reply, nullptr);
      EnterSession(std::make_shared<PreparedRequest>(std::move(prepared)), reply);
    });
  });
}

ApiResult<PreparedRequest> Server::Impl::PrepareBody(Api api, const HttpRequest& http,
                                                     Asker asker) {
  ApiResult<Json> body = ParseObject(http.body);
  if (auto* error = std::get_if<ApiError>(&body)) return std::move(*error);
  ApiResult<ApiRequest> converted = ReadApi(api, std::move(std::get<Json>(body)), responses);
  if (auto* error = std::get_if<ApiError>(&converted)) return std::move(*error);
  auto& in_chat = std::get<ApiRequest>(converted);
  const Endpoint endpoint = EndpointOf(api);
  ApiResult<CompletionRequest> read = ReadRequest(endpoint, in_chat.body, options.defaults);
  if (auto* error = std::get_if<ApiError>(&read)) return in_chat.renamed(std::move(*error));
  auto& request = std::get<CompletionRequest>(read);
  const ApiResult<int> priority = asker.ticket->PriorityFor(request.priority);
  if (const auto* error = std::get_if<ApiError>(&priority)) return *error;
  request.priority = std::get<int>(priority);
  request.cache_salt = TenantOf(asker.ticket->key()) + '\n' + request.cache_salt;
  if (auto error = TakeSessionHeader(std::string(http.header("x-session-id")), keeper != nullptr,
                                     &request)) {
    return *std::move(error);
  }
  PreparedRequest result = {
      .interface = api,
      .asker = std::move(asker),
      .exchange = {.endpoint = endpoint,
                   .model_id = options.defaults.model_id,
                   .created = static_cast<int64_t>(std::time(nullptr)),
                   .fingerprint = fingerprint,
                   .streams = request.streams,
                   .includes_usage = request.includes_usage,
                   .tells_hash = request.tells_hash,
                   .choices_per_prompt = static_cast<size_t>(request.num_choices)},
      .ignored = std::move(request.ignored),
      .api = std::move(in_chat)};
  if (!request.session_id.empty()) {
    result.turn = std::move(request);
    return result;
  }
  ApiResult<Prepared> prepared = Prepare(*model, std::move(request));
  if (auto* error = std::get_if<ApiError>(&prepared)) return result.api.renamed(std::move(*error));
  Describe(std::move(std::get<Prepared>(prepared)), &result);
  return result;
}

void Server::Impl::EnterSession(const std::shared_ptr<PreparedRequest>& request,
                                const std::shared_ptr<Reply>& reply) {
  const CompletionRequest& turn = *request->turn;
  const store::SessionName name = {TenantOf(request->asker.ticket->key()), turn.session_id};
  const SessionTraits traits = {.model = fingerprint,
                                .policy = DescribePolicy(turn.session),
                                .tiers = DescribeTiers(turn.session)};
  keeper->Enter(name, traits, [this, request, reply](auto entered) {
    if (const auto* error = std::get_if<ApiError>(&entered)) {
      return reply->Send(ErrorAnswer(*error));
    }
    const auto use = std::get<std::shared_ptr<SessionUse>>(std::move(entered));
    if (stopping) {
      keeper->Leave(use);
      return reply->Send(ErrorAnswer(StoppingError()));
    }
    boost::asio::post(preparing, [this, request, reply, use] {
      auto made = std::make_shared<ApiResult<PreparedTurn>>(
          PrepareTurn(*model, *std::exchange(request->turn, std::nullopt), use->record));
      http->Post([this, request, reply, use, made] {
        SubmitTurn(std::move(*request), std::move(*made), reply, use);
      });
    });
  });
}

void Server::Impl::SubmitTurn(PreparedRequest request, ApiResult<PreparedTurn> made,
                              const std::shared_ptr<Reply>& reply,
                              const std::shared_ptr<SessionUse>& use) {
  if (const auto* error = std::get_if<ApiError>(&made)) {
    keeper->Leave(use);
    return reply->Send(ErrorAnswer(request.api.renamed(*error)));
  }
  auto& turn = std::get<PreparedTurn>(made);
  Describe(std::move(turn.prepared), &request);
  if (!turn.said.has_value()) return Submit(std::move(request), reply, use);
  keeper->Leave(use);
  const JobId id = next_job++;
  Await(std::move(request), {id}, reply);
  turn.said->id = id;
  std::vector<JobUpdate> updates;
  updates.push_back(*std::move(turn.said));
  Take(std::move(updates));
}

void Server::Impl::Submit(PreparedRequest request, const std::shared_ptr<Reply>& reply,
                          const std::shared_ptr<SessionUse>& use) {
  std::vector<JobId> ids;
  for (Job& job : request.prepared.jobs) {
    ids.push_back(job.id = next_job++);
    job.owner = request.asker.ticket->owner();
  }
  if (use != nullptr) keeper->Begin(use, ids.front(), &*request.prepared.jobs.front().work);
  if (const Status status = driver->Submit(std::move(request.prepared.jobs)); !status.ok()) {
    if (use != nullptr) keeper->Leave(use);
    const bool is_full = status.code() == StatusCode::kResourceExhausted;
    return reply->Send(ErrorAnswer(is_full ? Overloaded(status.message()) : ErrorFrom(status)));
  }
  Await(std::move(request), std::move(ids), reply);
}

std::shared_ptr<Pending> Server::Impl::Await(PreparedRequest request, std::vector<JobId> ids,
                                             const std::shared_ptr<Reply>& reply) {
  request.exchange.id = MakeId(request.interface, run_id, next_answer++);
  Headers headers;
  Asker& asker = request.asker;
  if (asker.request_id.empty()) headers.emplace_back("X-Request-Id", request.exchange.id);
  if (!request.ignored.empty()) headers.emplace_back("X-Ebb-Ignored", InHeader(request.ignored));
  const bool streams = request.exchange.streams;
  const std::string id = request.exchange.id;
  const auto answered = std::make_shared<Pending>(
      Pending{.exchange = request.api.exchange(model, std::move(request.exchange)),
              .reply = reply,
              .jobs = ids,
              .streams = streams,
              .keep = std::move(request.api.keep),
              .headers = std::move(headers),
              .id = id,
              .request_id = std::move(asker.request_id),
              .ticket = asker.ticket});
  for (size_t i = 0; i < ids.size(); ++i) {
    pending[ids[i]] = {answered, i};
    tickets[ids[i]] = asker.ticket;
  }
  reply->OnGone([this, weak = std::weak_ptr<Pending>(answered)] {
    if (const auto gone = weak.lock()) Forget(*gone);
  });
  return answered;
}

void Server::Impl::Take(std::vector<JobUpdate> updates) {
  std::set<std::shared_ptr<Pending>> touched;
  for (JobUpdate& update : updates) {
    if (update.end.has_value()) {
      const auto ticket = tickets.extract(update.id);
      const JobEnd& end = *update.end;
      if (!ticket.empty()) ticket.mapped()->Charge(end.prompt_tokens + end.generated_tokens);
    }
    // Also of jobs whose client has gone.
    if (keeper != nullptr) keeper->Take(&update);
    const auto found = pending.find(update.id);
    if (found == pending.end()) continue;
    const auto& [request, choice] = found->second;
    request->exchange->Take(choice, std::move(update));
    touched.insert(request);
  }
  for (const std::shared_ptr<Pending>& request : touched) Advance(request);
}

void Server::Impl::Advance(const std::shared_ptr<Pending>& request) {
  Exchange& exchange = *request->exchange;
  Reply& reply = *request->reply;
  const bool is_over = exchange.is_over();
  if (is_over && request->keep && !exchange.error().has_value()) request->keep(exchange);
  if (request->streams && !request->has_begun && exchange.is_accepted()) {
    request->has_begun = true;
    Headers headers = request->headers;
    headers.emplace_back("Cache-Control", "no-cache");
    headers.emplace_back("X-Accel-Buffering", "no");
    reply.Stream({.content_type = "text/event-stream; charset=utf-8", .headers = headers},
                 [request] { return request->exchange->TakeEvents(); });
  }
  if (request->has_begun) {
    reply.Poke();
    if (is_over) reply.EndStream();
  } else if (is_over) {
    HttpAnswer answer = exchange.error().has_value() ? ErrorAnswer(*exchange.error())
                                                     : JsonAnswer(exchange.Whole());
    for (const auto& header : request->headers) answer.headers.push_back(header);
    reply.Send(std::move(answer));
  }
  if (is_over) Forget(*request);
}

void Server::Impl::Forget(const Pending& request) {
  for (const JobId id : request.jobs) {
    if (pending.erase(id) > 0) driver->Cancel(id);
  }
}

void Server::Impl::MakeDashboard() {
  // What the engine's thread sees goes on to the thread of connections.
  const auto here = [this](auto tell) {
    return [this, tell = std::move(tell)](auto seen) {
      auto shared = std::make_shared<decltype(seen)>(std::move(seen));
      http->Post([shared, tell] { tell(std::move(*shared)); });
    };
  };
  dashboard = std::make_unique<Dashboard>(
      model,
      DashboardSetting{.mode = options.dashboard,
                       .model_id = options.defaults.model_id,
                       .max_stall_seconds = options.defaults.engine.max_stall_seconds},
      DashboardSource{
          .look = [this, here](auto tell) { driver->Look(here(std::move(tell))); },
          .trace = [this, here](JobId id, auto tell) { driver->Trace(id, here(std::move(tell))); },
          .later = [this](double seconds,
                          auto work) { http->PostLater(seconds, std::move(work)); }});
}

std::vector<std::shared_ptr<Pending>> Server::Impl::FindRequests(const HttpRequest& request,
                                                                 std::string_view id) const {
  std::set<std::shared_ptr<Pending>> found;
  for (const auto& [job, entry] : pending) {
    const std::shared_ptr<Pending>& candidate = entry.first;
    const bool is_called_so = candidate->id == id || candidate->request_id == id;
    if (is_called_so && gate->MaySee(request, *candidate->ticket)) found.insert(candidate);
  }
  return {found.begin(), found.end()};
}

HttpAnswer Server::Impl::CancelRequest(const HttpRequest& request) {
  const std::string id = request.path.substr(kRequests.size());
  const auto found = FindRequests(request, id);
  if (id.empty() || found.empty()) {
    return ErrorAnswer({.status = 404,
                        .message = "no request of this id is being answered",
                        .code = "request_not_found"});
  }
  for (const std::shared_ptr<Pending>& one : found) {
    // A client that sends it again would undo what was asked for here.
    one->headers.emplace_back("X-Should-Retry", "false");
    one->exchange->EndWith(
        {.status = 499, .message = "the request was cancelled", .code = "cancelled"});
    Advance(one);
  }
  return JsonAnswer({{"id", id}, {"object", "request"}, {"cancelled", true}});
}

HttpAnswer Server::Impl::Control(const HttpRequest& request) {
  constexpr size_t kMostBytes = 4096;
  if (!IsJson(request.content_type)) return ErrorAnswer(NoJson());
  if (request.body.size() > kMostBytes) {
    return ErrorAnswer(Invalid(fmt::format("expected at most {} bytes", kMostBytes), ""));
  }
  const ApiResult<Json> body = ParseObject(request.body);
  if (const auto* error = std::get_if<ApiError>(&body)) return ErrorAnswer(*error);
  std::optional<ApiError> error;
  JsonFields fields(std::get<Json>(body), "", &error);
  const auto id = fields.Text("id");
  const auto action = fields.Text("action");
  if (!id.has_value() || id->empty()) fields.Fail("id", "expected an id", "missing_field");
  if (action != "reasoning_end") fields.Fail("action", "expected reasoning_end");
  if (error.has_value()) return ErrorAnswer(*error);
  const auto found = FindRequests(request, *id);
  if (found.empty()) {
    return JsonAnswer({{"success", false}, {"message", "no request of this id is being answered"}});
  }
  for (const std::shared_ptr<Pending>& one : found) {
    for (const JobId job : one->jobs) driver->EndThought(job);
  }
  return JsonAnswer({{"success", true}});
}

Json Server::Impl::ModelJson() const {
  const ModelShape& shape = model->shape();
  const int context = options.defaults.session.context;
  return {{"id", options.defaults.model_id},
          {"object", "model"},
          {"created", started},
          {"owned_by", "ebb"},
          {"max_model_len", context > 0 ? context : shape.trained_context},
          {"meta",
           {{"description", model->description()},
            {"n_vocab", shape.vocab_size},
            {"n_ctx_train", shape.trained_context},
            {"size", model->weight_bytes()}}}};
}

HttpAnswer Server::Impl::Tokenize(const Json& body) const {
  std::optional<ApiError> error;
  JsonFields fields(body, "", &error);
  const auto content = fields.Text("content");
  const auto prompt = fields.Text("prompt");
  const bool add_bos = fields.Bool("add_special").value_or(false);
  const bool parse = fields.Bool("parse_special").value_or(true);
  if (!content.has_value() && !prompt.has_value()) {
    fields.Fail("content", "expected a text", "missing_field");
  }
  if (error.has_value()) return ErrorAnswer(*error);
  const auto tokens = model->Tokenize(content.has_value() ? *content : *prompt,
                                      add_bos ? Model::AddBos::kAsModelSays : Model::AddBos::kNo,
                                      parse ? Model::Specials::kParse : Model::Specials::kAsText);
  if (!tokens.ok()) return ErrorAnswer(ErrorFrom(tokens.status()));
  return JsonAnswer({{"tokens", *tokens}, {"count", tokens->size()}});
}

HttpAnswer Server::Impl::Detokenize(const Json& body) const {
  std::optional<ApiError> error;
  JsonFields fields(body, "", &error);
  const Json* tokens = fields.Array("tokens");
  if (tokens == nullptr) fields.Fail("tokens", "expected an array of tokens", "missing_field");
  std::string text;
  for (size_t i = 0; !error.has_value() && i < tokens->size(); ++i) {
    const Json& token = (*tokens)[i];
    if (!token.is_number_integer() || token < 0 || token >= model->shape().vocab_size) {
      fields.Fail(fmt::format("tokens[{}]", i),
                  fmt::format("expected 0 to {}", model->shape().vocab_size - 1), "out_of_range");
      break;
    }
    text += model->TokenText(token.get<Token>(), Model::ControlTokens::kShow);
  }
  if (error.has_value()) return ErrorAnswer(*error);
  return JsonAnswer({{"content", text}});
}

HttpAnswer Server::Impl::ApplyTemplate(const Json& body) const {
  ApiResult<ChatRequest> request = ReadChatRequest(body);
  if (const auto* error = std::get_if<ApiError>(&request)) return ErrorAnswer(*error);
  const Result<ChatPrompt> prompt = model->FormatChat(std::get<ChatRequest>(request));
  if (!prompt.ok()) return ErrorAnswer(ErrorFrom(prompt.status()));
  return JsonAnswer({{"prompt", prompt->text}});
}

HttpAnswer Server::Impl::CountTokens(const Json& body) const {
  ApiResult<MessagesRequest> read = ReadMessagesRequest(body, MessagesUse::kCount);
  if (const auto* error = std::get_if<ApiError>(&read)) return ErrorAnswer(*error);
  ApiResult<ChatRequest> request = ReadChatRequest(std::get<MessagesRequest>(read).chat);
  if (auto* error = std::get_if<ApiError>(&request)) return ErrorAnswer(InMessages(*error));
  auto& chat = std::get<ChatRequest>(request);
  const std::vector<ChatMessage> messages = std::exchange(chat.messages, {});
  const Result<Turn> turn = BeginTurn(*model, {.request = std::move(chat)}, messages);
  if (!turn.ok()) return ErrorAnswer(InMessages(ErrorFrom(turn.status())));
  return JsonAnswer({{"input_tokens", turn->tokens.size()}});
}

HttpAnswer Server::Impl::AnswerResponse(std::string_view method, std::string path) {
  const size_t slash = std::min(path.find('/'), path.size());
  const std::string rest = path.substr(slash);
  const std::string id = path.substr(0, slash);
  if (rest == "/cancel" && method == "POST") return CancelResponse(id);
  const bool is_read = method == "GET" && (rest.empty() || rest == "/input_items");
  const bool is_deleted = method == "DELETE" && rest.empty();
  if (!is_read && !is_deleted) {
    return ErrorAnswer({.status = 404,
                        .message = "there are GET and DELETE /v1/responses/ID, GET "
                                   "/v1/responses/ID/input_items and POST /v1/responses/ID/cancel",
                        .code = "not_found"});
  }
  const auto stored = responses->Find(id);
  if (stored == nullptr) {
    return ErrorAnswer({.status = 404,
                        .message = fmt::format("there is no response \"{}\"", id),
                        .code = "not_found"});
  }
  if (is_deleted) {
    const bool deleted = responses->Delete(id);
    return JsonAnswer({{"id", id}, {"object", "response"}, {"deleted", deleted}});
  }
  if (rest.empty()) return JsonAnswer(stored->response());
  return JsonAnswer({{"object", "list"}, {"data", stored->input()}, {"has_more", false}});
}

HttpAnswer Server::Impl::CancelResponse(const std::string& id) {
  const bool is_response = id.starts_with("resp_");
  const auto found = std::ranges::find_if(pending, [&](const auto& job) {
    return is_response && job.second.first->exchange->id() == id;
  });
  if (found == pending.end()) {
    return ErrorAnswer({.status = 404,
                        .message = fmt::format("no response \"{}\" is being made", id),
                        .code = "not_found"});
  }
  // Its own request is told when the job has ended.
  driver->Cancel(found->first);
  Json response = found->second.first->exchange->Whole();
  response["status"] = "cancelled";
  return JsonAnswer(response);
}

Status Server::Impl::OpenSessions() {
  if (!options.sessions.has_value()) return OkStatus();
  EBB_ASSIGN_OR_RETURN(auto opened, store::OpenStore(*options.sessions, options.keeping.limits));
  const auto deliver = [this](JobUpdate update) {
    std::vector<JobUpdate> updates;
    updates.push_back(std::move(update));
    Take(std::move(updates));
  };
  EBB_ASSIGN_OR_RETURN(
      keeper, SessionKeeper::Create(
                  std::move(opened), options.keeping,
                  {.post = [this](std::function<void()> work) { http->Post(std::move(work)); },
                   .discard = [this](uint64_t resting) { driver->Discard(resting); },
                   .cancel = [this](JobId id) { driver->Cancel(id); },
                   .deliver = deliver}));
  return OkStatus();
}

Server::Server() : impl_(std::make_unique<Impl>()) {}

Result<std::unique_ptr<Server>> Server::Start(std::shared_ptr<const Model> model,
                                              const ServerOptions& options) {
  std::unique_ptr<Server> server(new Server());
  Impl& impl = *server->impl_;
  impl.model = std::move(model);
  impl.options = options;
  RequestDefaults& defaults = impl.options.defaults;
  EBB_RETURN_IF_ERROR(ShareTiers(&defaults.session));
  EBB_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::Create(impl.model, defaults.engine));
  // What is wrong with the defaults is told now rather than to each request.
  EBB_RETURN_IF_ERROR(engine->OpenSession(defaults.session).status());
  impl.fingerprint = fmt::format("ebb-{:016x}", impl.model->fingerprint());
  impl.started = static_cast<int64_t>(std::time(nullptr));
  impl.run_id = std::random_device()();
  impl.responses = std::make_shared<ResponseStore>(options.response_store_bytes);
  impl.gate = std::make_unique<Gate>(options.cors_origins, impl.run_id);
  impl.gate->SetKeys(options.keys);
  impl.MakeRoutes();
  impl.MakeDashboard();
  DriverOptions driver_options = options.driver;
  driver_options.keeps_fates = options.dashboard != DashboardMode::kOff;
  // Nothing comes before there is a job, and no job before somebody can connect.
  impl.driver = std::make_unique<Driver>(
      std::move(engine), driver_options, [&impl](std::vector<JobUpdate> updates) {
        auto shared = std::make_shared<std::vector<JobUpdate>>(std::move(updates));
        impl.http->Post([&impl, shared] { impl.Take(std::move(*shared)); });
      });
  EBB_RETURN_IF_ERROR(impl.OpenSessions());
  EBB_ASSIGN_OR_RETURN(
      impl.http, HttpServer::Listen(options.host, options.port, options.http, impl.MakeHandler()));
  impl.http->Serve();
  return server;
}

Server::~Server() {
  impl_->stopping = true;
  impl_->preparing.join();
  if (impl_->driver != nullptr) impl_->driver->Stop();
  // Before `http` goes, which what watches would ask for more.
  std::promise<void> closed;
  if (impl_->http != nullptr) {
    impl_->http->Post([&] {
      impl_->dashboard->Close();
      closed.set_value();
    });
    closed.get_future().wait();
  }
  // What the driver saved of each session goes to the store first.
  constexpr double kMostSeconds = 30;
  const bool has_sessions = impl_->keeper != nullptr && impl_->http != nullptr;
  if (has_sessions) impl_->keeper->WaitUntilSaved(kMostSeconds);
  if (impl_->keeper != nullptr) impl_->keeper->Stop();
  impl_->http.reset();
}

void Server::SetKeys(std::shared_ptr<const KeyRing> keys) { impl_->gate->SetKeys(std::move(keys)); }

void Server::Drain() {
  impl_->draining = true;
  impl_->http->Drain();
}
bool Server::is_drained() const { return impl_->draining && impl_->http->num_answering() == 0; }

std::string Server::address() const { return impl_->http->address(); }
uint16_t Server::port() const { return impl_->http->port(); }
Figures Server::figures() const { return impl_->driver->figures(); }

}  // namespace ebb::server
