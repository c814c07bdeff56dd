// Makes the routes, and starts and stops a server.
#include "src/server/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <ctime>
#include <functional>
#include <future>
#include <random>
#include <type_traits>

#include <fmt/format.h>

#include "ebb/session_file.h"
#include "src/server/access/trace_context.h"
#include "src/server/api/error_form.h"
#include "src/server/open_api.h"
#include "src/server/server_impl.h"
#include "src/server/sessions/session_routes.h"

namespace ebb::server {
namespace {

// Refuses compressed bodies. The server does not decode them, and would otherwise report that the
// body is no JSON.
std::optional<ApiError> CheckContentEncoding(const HttpRequest& request) {
  const std::string_view encoding = request.header("content-encoding");
  constexpr std::string_view kIdentity = "identity";
  const bool is_identity = std::ranges::equal(encoding, kIdentity, [](char a, char b) {
    return (a >= 'A' && a <= 'Z' ? a | 0x20 : a) == b;
  });
  if (encoding.empty() || is_identity) return std::nullopt;
  return ApiError{.status = 415,
                  .message = fmt::format("Content-Encoding: expected none, found {}", encoding),
                  .code = "unsupported_media_type"};
}

// Returns whether all sockets have loopback addresses of TCP.
bool AreLoopback(const std::vector<int>& sockets) {
  return std::ranges::all_of(sockets, [](int socket) {
    sockaddr_in6 address = {};  // large enough for IPv4 too
    socklen_t size = sizeof(address);
    if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) return false;
    if (address.sin6_family == AF_INET6) return IN6_IS_ADDR_LOOPBACK(&address.sin6_addr) != 0;
    const auto* const ipv4 = reinterpret_cast<const sockaddr_in*>(&address);
    return ipv4->sin_family == AF_INET && ntohl(ipv4->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
  });
}

// Returns the host names to allow if the server listens on this machine only, else nothing. Such a
// server must check names: a page in a browser on this machine can reach it too.
std::optional<std::vector<std::string>> HostsOf(const ServerOptions& options) {
  const std::string& host = options.host;
  const bool is_here = options.sockets.empty()
                           ? host == "localhost" || host == "::1" || host.starts_with("127.")
                           : AreLoopback(options.sockets);
  return is_here ? std::optional(options.allowed_hosts) : std::nullopt;
}

// Makes the handler of a route from `answer`, a function without arguments or of (request, part),
// which must be fast.
template <typename Answer>
auto AtOnce(Answer answer) {
  return
      [answer = std::move(answer)](const HttpRequest& request, const std::shared_ptr<Reply>& reply,
                                   const std::string& part) {
        if constexpr (std::is_invocable_v<Answer>) {
          reply->Send(answer());
        } else {
          reply->Send(answer(request, part));
        }
      };
}

}  // namespace

std::vector<Route> Server::Impl::MakeRoutes() {
  std::vector<Route> all;
  AddCompletionRoutes(&all);
  AddModelRoutes(&all);
  AddServerRoutes(&all);
  AddSessionRoutes(keeper.get(), &all);
  const ChatTabs tabs = {.chat = options.chat_page == ChatPageMode::kOn,
                         .server = options.dashboard != DashboardMode::kOff};
  if (tabs.chat || tabs.server) AddChatRoutes(tabs, &all);
  dashboard->AddRoutes(&all);
  return all;
}

void Server::Impl::AddCompletionRoutes(std::vector<Route>* routes) {
  const auto complete = [&](const char* path, Api api) {
    routes->push_back(
        {"POST", path, Access::kKey,
         [this, api](HttpRequest request, std::shared_ptr<Reply> reply, const std::string&) {
           Complete(api, std::move(request), std::move(reply));
         }});
  };
  complete("/v1/chat/completions", Api::kChat);
  complete("/chat/completions", Api::kChat);
  complete("/v1/completions", Api::kText);
  complete("/completion", Api::kLlama);
  complete("/completions", Api::kLlama);
  complete("/infill", Api::kInfill);
  complete("/v1/responses", Api::kResponses);
  complete("/responses", Api::kResponses);
  complete("/v1/messages", Api::kMessages);
  const auto add = [&](const char* method, const char* path, auto answer) {
    routes->push_back({method, path, Access::kKey, AtOnce(std::move(answer))});
  };
  add("POST", "/v1/chat/completions/control",
      [this](const HttpRequest& request, const std::string&) { return Control(request); });
  add("DELETE", "/v1/requests/*", [this](const HttpRequest& request, const std::string& id) {
    return CancelRequest(request, id);
  });
  routes->push_back({"GET", "/v1/requests/*/tokens/*", Access::kKey,
                     [this](const HttpRequest& request, const std::shared_ptr<Reply>& reply,
                            const std::string& id) { ExplainToken(request, reply, id); }});
  const auto of_response = [&](const char* method, const char* path,
                               HttpAnswer (Impl::*answer)(const std::string&)) {
    add(method, path,
        [this, answer](const HttpRequest&, const std::string& id) { return (this->*answer)(id); });
  };
  of_response("GET", "/v1/responses/*", &Impl::GetResponse);
  of_response("DELETE", "/v1/responses/*", &Impl::DeleteResponse);
  of_response("GET", "/v1/responses/*/input_items", &Impl::GetResponseInput);
  of_response("POST", "/v1/responses/*/cancel", &Impl::CancelResponse);
}

void Server::Impl::AddModelRoutes(std::vector<Route>* routes) {
  const auto work = [&](const char* path, Compute compute) {
    routes->push_back({"POST", path, Access::kKey,
                       [this, compute = std::move(compute)](
                           HttpRequest request, std::shared_ptr<Reply> reply, const std::string&) {
                         Work(std::move(request), std::move(reply), compute);
                       }});
  };
  work("/tokenize", [this](const Json& body) { return Tokenize(body); });
  work("/detokenize", [this](const Json& body) { return Detokenize(body); });
  work("/apply-template", [this](const Json& body) { return ApplyTemplate(body); });
  const auto count = [&](const char* path, Api api) {
    work(path, [this, api](const Json& body) { return CountPrompt(api, body); });
  };
  count("/v1/chat/completions/input_tokens", Api::kChat);
  count("/chat/completions/input_tokens", Api::kChat);
  count("/v1/responses/input_tokens", Api::kResponses);
  count("/v1/messages/count_tokens", Api::kMessages);
  const auto get = [&](const char* path, Access access, auto answer) {
    routes->push_back({"GET", path, access, AtOnce(std::move(answer))});
  };
  const auto models = [this] {
    return JsonAnswer({{"object", "list"}, {"data", Json::array({ModelJson()})}});
  };
  get("/v1/models", Access::kKey, models);
  get("/models", Access::kKey, models);
  get("/v1/models/**", Access::kKey,
      [this](const HttpRequest&, const std::string& name) { return GetModel(name); });
  get("/props", Access::kKey, [this] { return JsonAnswer(Props()); });
  get("/slots", Access::kAdmin, [this] { return JsonAnswer(Slots()); });
}

void Server::Impl::AddServerRoutes(std::vector<Route>* routes) {
  const auto get = [&](const char* path, Access access, auto answer) {
    routes->push_back({"GET", path, access, AtOnce(std::move(answer))});
  };
  const auto ready = [this] {
    HttpAnswer answer = JsonAnswer({{"status", draining ? "stopping" : "ok"}});
    if (draining) answer.status = 503;
    return answer;
  };
  get("/health", Access::kOpen, ready);
  get("/health/ready", Access::kOpen, ready);
  get("/v1/health", Access::kOpen, ready);
  get("/health/live", Access::kOpen, [] { return JsonAnswer({{"status", "ok"}}); });
  get("/metrics", Access::kAdmin, [this] {
    return HttpAnswer{
        .content_type = "text/plain; version=0.0.4; charset=utf-8",
        .body = MetricsText(driver->figures(), http->num_connections(), options.metrics_alias) +
                (keeper != nullptr ? keeper->MetricsText() : "") +
                (prefix_store != nullptr ? prefix_store->MetricsText() : "") + AccessLogMetrics(),
        .headers = {{"Process-Start-Time-Unix", std::to_string(started)}}};
  });
  get("/openapi.yaml", Access::kOpen,
      [] { return HttpAnswer{.content_type = "application/yaml", .body = std::string(kOpenApi)}; });
  routes->push_back({"POST", "/v1/embeddings", Access::kKey, AtOnce([] {
                       return ErrorAnswer({.status = 501,
                                           .message =
                                               "not supported; there are /v1/chat/completions, "
                                               "/v1/completions, /v1/responses and /v1/messages",
                                           .code = "unsupported_endpoint"});
                     })});
}

std::string Server::Impl::AccessLogMetrics() const {
  if (options.access_log == nullptr) return "";
  constexpr const char* kName = "ebb_access_log_dropped_total";
  return fmt::format(
      "# HELP {0} Lines of the access log that could not be written.\n"
      "# TYPE {0} counter\n{0} {1}\n",
      kName, options.access_log->num_dropped());
}

HttpServer::Handler Server::Impl::MakeHandler() {
  return {.begin =
              [this](HttpRequest* request) {
                if (options.access_log == nullptr) return;
                request->watcher = std::make_shared<AccessLine>(options.access_log, *request);
              },
          .admit = [this](HttpRequest* request) { return Admit(request); },
          .handle =
              [this](HttpRequest request, std::shared_ptr<Reply> reply) {
                Handle(std::move(request), std::move(reply));
              },
          .refuse =
              [this](const HttpRequest& request, int status, std::string_view message) {
                HttpAnswer answer = ErrorAnswer({.status = status,
                                                 .message = std::string(message),
                                                 .code = status == 413   ? "body_too_large"
                                                         : status == 431 ? "header_too_large"
                                                         : status == 408 ? "request_timeout"
                                                         : status == 501 ? "unsupported_coding"
                                                         : status == 503 ? "queue_full"
                                                                         : "bad_request"});
                if (status == 503) answer.headers.emplace_back("Retry-After", "1");
                return WithErrorForm(request, std::move(answer));
              }};
}

std::optional<HttpAnswer> Server::Impl::Admit(HttpRequest* request) {
  if (gate->Preflight(*request).has_value()) return std::nullopt;
  std::optional<ApiError> error = gate->Admit(router->AccessTo(*request), request);
  if (request->watcher != nullptr) LineOf(*request)->SetKey(TenantOf(request->key));
  if (!error.has_value()) error = CheckContentEncoding(*request);
  if (!error.has_value()) return std::nullopt;
  HttpAnswer answer = ErrorAnswer(*error);
  if (error->status == 401) answer.headers.emplace_back("WWW-Authenticate", "Bearer");
  if (error->status == 415) answer.headers.emplace_back("Accept-Encoding", "identity");
  return WithErrorForm(*request, std::move(answer));
}

Headers Server::Impl::HeadersFor(const HttpRequest& request) const {
  Headers headers = gate->HeadersFor(request);
  std::ranges::move(TraceHeaders(request), std::back_inserter(headers));
  return headers;
}

HttpAnswer Server::Impl::WithErrorForm(const HttpRequest& request, HttpAnswer answer) const {
  for (auto& header : HeadersFor(request)) answer.headers.push_back(header);
  return InFormOf(request.path, std::move(answer));
}

void Server::Impl::Handle(HttpRequest request, std::shared_ptr<Reply> reply) {
  Headers headers = HeadersFor(request);
  if (request.watcher != nullptr) LineOf(request)->SetId(headers.front().second);
  reply = Gate::WithHeaders(std::move(reply), std::move(headers));
  if (auto preflight = gate->Preflight(request)) return reply->Send(*std::move(preflight));
  reply = WithErrorsInFormOf(request.path, std::move(reply));
  if (stopping) {
    return reply->Send(ErrorAnswer(StoppingError()));
  }
  router->Handle(std::move(request), std::move(reply));
}

void Server::Impl::MakeDashboard() {
  dashboard = std::make_unique<Dashboard>(
      model,
      DashboardSetting{.mode = options.dashboard,
                       .model_id = options.defaults.model_id,
                       .max_stall_seconds = options.defaults.engine.max_stall_seconds},
      DashboardSource{
          .look = [this](auto tell) { driver->Look(Here(std::move(tell))); },
          .trace = [this](JobId id, auto tell) { driver->Trace(id, Here(std::move(tell))); },
          .later = [this](double seconds,
                          auto work) { http->PostLater(seconds, std::move(work)); }});
}

void Server::Impl::Explain(JobId job, Position position, TellReasons tell) {
  driver->Explain(job, position, Here(std::move(tell)));
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
                   .explain = std::bind_front(&Impl::Explain, this),
                   .deliver = deliver}));
  return OkStatus();
}

Result<std::shared_ptr<PrefixStore>> Server::Impl::OpenPrefixStore(const Engine& engine) const {
  const bool is_on = options.sessions.has_value() && options.prefix_store.most_bytes > 0 &&
                     options.driver.prefix_cache_bytes > 0;
  if (!is_on) return std::shared_ptr<PrefixStore>();
  EBB_ASSIGN_OR_RETURN(auto opened, store::OpenStore(*options.sessions, options.keeping.limits));
  EBB_ASSIGN_OR_RETURN(auto prefixes, PrefixStore::Create(std::move(opened), DescribeRows(engine),
                                                          fingerprint, options.prefix_store));
  return std::shared_ptr<PrefixStore>(std::move(prefixes));
}

Server::Server() : impl_(std::make_unique<Impl>()) {}

Result<std::unique_ptr<Server>> Server::Start(std::shared_ptr<const Model> model,
                                              const ServerOptions& options) {
  std::unique_ptr<Server> server(new Server());
  Impl& impl = *server->impl_;
  impl.model = std::move(model);
  impl.options = options;
  RequestDefaults& defaults = impl.options.defaults;
  EBB_RETURN_IF_ERROR(ShareTiers(defaults.session, &defaults.engine));
  EBB_ASSIGN_OR_RETURN(std::unique_ptr<Engine> engine, Engine::Create(impl.model, defaults.engine));
  // Opens a session to report errors of the defaults now rather than with each request.
  EBB_RETURN_IF_ERROR(engine->OpenSession(defaults.session).status());
  impl.fingerprint = fmt::format("ebb-{:016x}", impl.model->fingerprint());
  const ChatMessage hello = {"user", "Hello"};
  const auto turn = BeginTurn(*impl.model, {}, {&hello, 1});
  impl.thinks = turn.ok() && !turn->prompt.thinking_start.empty();
  // Makes a sampler with a grammar so that the vocabulary is sorted now and no request waits for
  // that. Fails harmlessly without a tokenizer.
  static_cast<void>(Sampler::Create(*impl.model, {.grammar = "root ::= \"\""}));
  impl.started = static_cast<int64_t>(std::time(nullptr));
  impl.run_id = std::random_device()();
  impl.responses = std::make_shared<ResponseStore>(options.response_store_bytes);
  impl.gate = std::make_unique<Gate>(options.cors_origins, impl.run_id, HostsOf(options));
  impl.gate->SetKeys(options.keys);
  impl.lanes = std::make_unique<WorkLanes>(options.driver.most_waiting);
  impl.MakeDashboard();
  DriverOptions driver_options = options.driver;
  EBB_ASSIGN_OR_RETURN(impl.prefix_store, impl.OpenPrefixStore(*engine));
  driver_options.prefix_store = impl.prefix_store;
  driver_options.keeps_fates =
      options.dashboard != DashboardMode::kOff || options.chat_page != ChatPageMode::kOff;
  // The callback uses impl.http, which is set below: no update comes before a job, and no job
  // before a client can connect.
  impl.driver = std::make_unique<Driver>(
      std::move(engine), driver_options, [&impl](std::vector<JobUpdate> updates) {
        auto shared = std::make_shared<std::vector<JobUpdate>>(std::move(updates));
        impl.http->Post([&impl, shared] { impl.Take(std::move(*shared)); });
      });
  EBB_RETURN_IF_ERROR(impl.OpenSessions());
  impl.router = std::make_unique<Router>(impl.MakeRoutes());
  auto http = options.sockets.empty()
                  ? HttpServer::Listen(options.host, options.port, options.http, impl.MakeHandler())
                  : HttpServer::Adopt(options.sockets, options.http, impl.MakeHandler());
  EBB_ASSIGN_OR_RETURN(impl.http, std::move(http));
  impl.http->Serve();
  return server;
}

Server::~Server() {
  const auto run_between_requests = [this](const std::function<void()>& call) {
    if (impl_->http == nullptr) return;
    std::promise<void> done;
    impl_->http->Post([&] {
      call();
      done.set_value();
    });
    done.get_future().wait();
  };
  impl_->stopping = true;
  // After this call, all earlier requests have reached `lanes`.
  run_between_requests([] {});
  if (impl_->lanes != nullptr) impl_->lanes->Stop();
  if (impl_->driver != nullptr) impl_->driver->Stop();
  // Closes the streams before `http` is destroyed, since a watcher would ask it for more.
  run_between_requests([this] { impl_->dashboard->Close(); });
  // Waits until sessions that the driver saved are in the store.
  constexpr double kMostSeconds = 30;
  const bool has_sessions = impl_->keeper != nullptr && impl_->http != nullptr;
  if (has_sessions) impl_->keeper->WaitUntilSaved(kMostSeconds);
  if (impl_->keeper != nullptr) impl_->keeper->Stop();
  impl_->http.reset();
}

void Server::SetKeys(std::shared_ptr<const KeyRing> keys) { impl_->gate->SetKeys(std::move(keys)); }

void Server::Drain() {
  impl_->draining = true;
  // The dashboard's streams must not delay draining.
  impl_->http->Post([impl = impl_.get()] { impl->dashboard->Close(); });
  impl_->http->Drain();
}
bool Server::is_drained() const { return impl_->draining && impl_->http->num_answering() == 0; }

std::vector<std::string> Server::addresses() const { return impl_->http->addresses(); }
uint16_t Server::port() const { return impl_->http->port(); }
Figures Server::figures() const { return impl_->driver->figures(); }

}  // namespace ebb::server
