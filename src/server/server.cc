// Invariant: `pending`, exchanges and replies belong to the thread of connections. The engine's
// thread and the one that prepares send what they have by HttpServer::Post().
#include "src/server/server.h"

#include <algorithm>
#include <atomic>
#include <ctime>
#include <functional>
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

#include "src/server/exchange.h"
#include "src/server/json_fields.h"

namespace ebb::server {
namespace {

HttpAnswer JsonAnswer(const Json& json) { return {.body = Dump(json)}; }

// A request that is being answered by the engine.
struct Pending {
  Exchange exchange;
  std::shared_ptr<Reply> reply;
  std::vector<JobId> jobs;
  bool streams = false;
  bool has_begun = false;  // its stream
  std::vector<std::pair<std::string, std::string>> headers;
};

// What the preparing thread makes of a body.
struct PreparedRequest {
  Prepared prepared;
  ExchangeOptions exchange;
  std::vector<std::string> ignored;
};

bool IsJson(std::string_view content_type) {
  const std::string_view type = content_type.substr(0, content_type.find(';'));
  constexpr std::string_view kJson = "application/json";
  return std::ranges::equal(
      type.substr(0, type.find_last_not_of(' ') + 1), kJson,
      [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a + ('a' - 'A') : a) == b; });
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
  };

  void MakeRoutes();
  void Handle(HttpRequest request, const std::shared_ptr<Reply>& reply);
  // Runs `compute` on the preparing thread, on the body's JSON.
  void Work(HttpRequest request, std::shared_ptr<Reply> reply, Compute compute);
  void Complete(Endpoint endpoint, HttpRequest request, std::shared_ptr<Reply> reply);
  [[nodiscard]] ApiResult<PreparedRequest> PrepareBody(Endpoint endpoint, std::string_view text);
  void Submit(PreparedRequest request, const std::shared_ptr<Reply>& reply);
  void Take(std::vector<JobUpdate> updates);
  void Advance(const std::shared_ptr<Pending>& request);
  // Its jobs, those that still run among them, are nobody's any more.
  void Forget(const Pending& request);
  // False: too much is being prepared; it is answered.
  bool BeginPreparing(const HttpRequest& request, Reply* reply);
  [[nodiscard]] ApiError Overloaded(std::string message) const;

  [[nodiscard]] Json ModelJson() const;
  [[nodiscard]] HttpAnswer Tokenize(const Json& body) const;
  [[nodiscard]] HttpAnswer Detokenize(const Json& body) const;
  [[nodiscard]] HttpAnswer ApplyTemplate(const Json& body) const;

  std::shared_ptr<const Model> model;
  ServerOptions options;
  std::string fingerprint;
  int64_t started = 0;
  uint64_t run_id = 0;  // so that ids of answers differ from run to run
  std::vector<Route> routes;
  std::map<JobId, std::pair<std::shared_ptr<Pending>, size_t>> pending;
  JobId next_job = 1;
  uint64_t next_answer = 1;
  size_t num_preparing = 0;
  std::atomic<bool> stopping = false;
  boost::asio::thread_pool preparing{1};
  std::unique_ptr<Driver> driver;
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
  const auto complete = [this](Endpoint endpoint) {
    return [this, endpoint](HttpRequest request, std::shared_ptr<Reply> reply) {
      Complete(endpoint, std::move(request), std::move(reply));
    };
  };
  const auto healthy = at_once([] { return JsonAnswer({{"status", "ok"}}); });
  const auto models = at_once([this] {
    return JsonAnswer({{"object", "list"}, {"data", Json::array({ModelJson()})}});
  });
  const auto metrics = at_once([this] {
    return HttpAnswer{
        .content_type = "text/plain; version=0.0.4; charset=utf-8",
        .body = MetricsText(driver->figures(), http->num_connections(), options.metrics_alias)};
  });
  const auto missing = at_once([] {
    return ErrorAnswer({.status = 501,
                        .message = "not supported; there are /v1/chat/completions and "
                                   "/v1/completions",
                        .code = "unsupported_endpoint"});
  });
  routes = {{"GET", "/health", healthy},
            {"GET", "/health/live", healthy},
            {"GET", "/health/ready", healthy},
            {"GET", "/metrics", metrics},
            {"GET", "/v1/models", models},
            {"POST", "/v1/chat/completions", complete(Endpoint::kChat)},
            {"POST", "/chat/completions", complete(Endpoint::kChat)},
            {"POST", "/v1/completions", complete(Endpoint::kText)},
            {"POST", "/tokenize", work(&Impl::Tokenize)},
            {"POST", "/detokenize", work(&Impl::Detokenize)},
            {"POST", "/apply-template", work(&Impl::ApplyTemplate)},
            {"POST", "/v1/embeddings", missing},
            {"POST", "/v1/responses", missing},
            {"POST", "/v1/messages", missing}};
}

void Server::Impl::Handle(HttpRequest request, const std::shared_ptr<Reply>& reply) {
  if (stopping) {
    return reply->Send(
        ErrorAnswer({.status = 503, .message = "the server is stopping", .code = "stopping"}));
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
  if (!IsJson(request.content_type)) {
    reply->Send(ErrorAnswer({.status = 415,
                             .message = "expected a Content-Type of application/json",
                             .code = "unsupported_media_type"}));
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

void Server::Impl::Complete(Endpoint endpoint, HttpRequest request, std::shared_ptr<Reply> reply) {
  if (!BeginPreparing(request, reply.get())) return;
  boost::asio::post(preparing, [this, endpoint, request = std::move(request),
                                reply = std::move(reply)]() mutable {
    auto result = std::make_shared<ApiResult<PreparedRequest>>(PrepareBody(endpoint, request.body));
    http->Post([this, result, reply = std::move(reply)] {
      --num_preparing;
      if (const auto* error = std::get_if<ApiError>(&*result)) {
        return reply->Send(ErrorAnswer(*error));
      }
      Submit(std::move(std::get<PreparedRequest>(*result)), reply);
    });
  });
}

ApiResult<PreparedRequest> Server::Impl::PrepareBody(Endpoint endpoint, std::string_view text) {
  ApiResult<Json> body = ParseObject(text);
  if (auto* error = std::get_if<ApiError>(&body)) return std::move(*error);
  ApiResult<CompletionRequest> read = ReadRequest(endpoint, std::get<Json>(body), options.defaults);
  if (auto* error = std::get_if<ApiError>(&read)) return std::move(*error);
  auto& request = std::get<CompletionRequest>(read);
  PreparedRequest result = {
      .exchange = {.endpoint = endpoint,
                   .model_id = options.defaults.model_id,
                   .created = static_cast<int64_t>(std::time(nullptr)),
                   .fingerprint = fingerprint,
                   .streams = request.streams,
                   .includes_usage = request.includes_usage,
                   .tells_hash = request.tells_hash,
                   .choices_per_prompt = static_cast<size_t>(request.num_choices)},
      .ignored = std::move(request.ignored)};
  ApiResult<Prepared> prepared = Prepare(*model, std::move(request));
  if (auto* error = std::get_if<ApiError>(&prepared)) return std::move(*error);
  result.prepared = std::move(std::get<Prepared>(prepared));
  result.exchange.num_choices = result.prepared.jobs.size();
  result.exchange.prompt = result.prepared.prompt;
  result.exchange.calls = result.prepared.may_call ? Calls::kParsed : Calls::kNone;
  result.exchange.first_call = result.prepared.num_calls;
  return result;
}

void Server::Impl::Submit(PreparedRequest request, const std::shared_ptr<Reply>& reply) {
  const bool is_chat = request.exchange.endpoint == Endpoint::kChat;
  request.exchange.id =
      fmt::format("{}-{:08x}{:08x}", is_chat ? "chatcmpl" : "cmpl", run_id, next_answer++);
  std::vector<JobId> ids;
  for (Job& job : request.prepared.jobs) ids.push_back(job.id = next_job++);
  std::vector<std::pair<std::string, std::string>> headers = {
      {"X-Request-Id", request.exchange.id}};
  if (!request.ignored.empty()) headers.emplace_back("X-Ebb-Ignored", InHeader(request.ignored));
  if (const Status status = driver->Submit(std::move(request.prepared.jobs)); !status.ok()) {
    const bool is_full = status.code() == StatusCode::kResourceExhausted;
    return reply->Send(ErrorAnswer(is_full ? Overloaded(status.message()) : ErrorFrom(status)));
  }
  const bool streams = request.exchange.streams;
  const auto answered =
      std::make_shared<Pending>(Pending{.exchange = Exchange(model, std::move(request.exchange)),
                                        .reply = reply,
                                        .jobs = ids,
                                        .streams = streams,
                                        .headers = std::move(headers)});
  for (size_t i = 0; i < ids.size(); ++i) pending[ids[i]] = {answered, i};
  reply->OnGone([this, weak = std::weak_ptr<Pending>(answered)] {
    if (const auto gone = weak.lock()) Forget(*gone);
  });
}

void Server::Impl::Take(std::vector<JobUpdate> updates) {
  std::set<std::shared_ptr<Pending>> touched;
  for (JobUpdate& update : updates) {
    const auto found = pending.find(update.id);
    if (found == pending.end()) continue;
    const auto& [request, choice] = found->second;
    request->exchange.Take(choice, std::move(update));
    touched.insert(request);
  }
  for (const std::shared_ptr<Pending>& request : touched) Advance(request);
}

void Server::Impl::Advance(const std::shared_ptr<Pending>& request) {
  Exchange& exchange = request->exchange;
  Reply& reply = *request->reply;
  const bool is_over = exchange.is_over();
  if (request->streams && !request->has_begun && exchange.is_accepted()) {
    request->has_begun = true;
    std::vector<std::pair<std::string, std::string>> headers = request->headers;
    headers.emplace_back("Cache-Control", "no-cache");
    headers.emplace_back("X-Accel-Buffering", "no");
    reply.Stream({.content_type = "text/event-stream; charset=utf-8", .headers = headers},
                 [request] { return request->exchange.TakeEvents(); });
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
  impl.MakeRoutes();
  // Nothing comes before there is a job, and no job before somebody can connect.
  impl.driver = std::make_unique<Driver>(
      std::move(engine), options.driver, [&impl](std::vector<JobUpdate> updates) {
        auto shared = std::make_shared<std::vector<JobUpdate>>(std::move(updates));
        impl.http->Post([&impl, shared] { impl.Take(std::move(*shared)); });
      });
  EBB_ASSIGN_OR_RETURN(
      impl.http,
      HttpServer::Listen(options.host, options.port, options.http,
                         {.handle =
                              [&impl](HttpRequest request, const std::shared_ptr<Reply>& reply) {
                                impl.Handle(std::move(request), reply);
                              },
                          .refuse =
                              [](int status, std::string_view message) {
                                return ErrorAnswer({.status = status,
                                                    .message = std::string(message),
                                                    .code = status == 413   ? "body_too_large"
                                                            : status == 431 ? "header_too_large"
                                                            : status == 408 ? "request_timeout"
                                                                            : "bad_request"});
                              }}));
  impl.http->Serve();
  return server;
}

Server::~Server() {
  impl_->stopping = true;
  impl_->preparing.join();
  if (impl_->driver != nullptr) impl_->driver->Stop();
  impl_->http.reset();
}

std::string Server::address() const { return impl_->http->address(); }
uint16_t Server::port() const { return impl_->http->port(); }
Figures Server::figures() const { return impl_->driver->figures(); }

}  // namespace ebb::server
