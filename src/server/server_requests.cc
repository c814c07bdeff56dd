// Handles requests that the engine answers: prepares them, submits them, delivers their updates and
// cancels them.
#include <algorithm>
#include <ctime>
#include <functional>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/server/api/base/json_fields.h"
#include "src/server/api/openai/text_bytes.h"
#include "src/server/server_impl.h"

namespace ebb::server {
namespace {

// Returns the request's fields that became template arguments none of which the template reads.
std::set<std::string> UnusedFields(const ChatPrompt& prompt,
                                   const std::map<std::string, std::string>& argument_fields) {
  std::set<std::string> unused, used;
  for (const auto& [name, field] : argument_fields) {
    const auto& names = prompt.unused_arguments;
    (std::ranges::find(names, name) == names.end() ? used : unused).insert(field);
  }
  std::erase_if(unused, [&](const std::string& field) { return used.contains(field); });
  return unused;
}

// Adds to `ignored` the fields that the template and the grammar of tools do not use.
void AddIgnored(CompletionRequest* request) {
  if (request->prompt == nullptr) return;
  std::ranges::copy(UnusedFields(*request->prompt, request->argument_fields),
                    std::back_inserter(request->ignored));
  for (const std::string& part : request->prompt->widened) {
    request->ignored.push_back(ClientField(*request, part));
  }
}

// Returns the names as a header's value: one line of printable ASCII.
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

ApiError Server::Impl::Overloaded(std::string message) const {
  const double wait = std::max(1.0, driver->figures().predicted_wait);
  return {.status = 503, .message = std::move(message), .code = "queue_full", .retry_after = wait};
}

bool Server::Impl::TakesBody(const HttpRequest& request, Reply* reply) {
  if (draining) {
    reply->Send(ErrorAnswer(StoppingError(/*retry_after=*/1)));
    return false;
  }
  if (!IsJson(request.content_type)) {
    reply->Send(ErrorAnswer(OtherContent()));
    return false;
  }
  return true;
}

void Server::Impl::AddWork(const std::string& client, size_t bytes, std::function<void()> run,
                           std::function<void(HttpAnswer)> refuse) {
  const auto refuse_there = [this, refuse = std::move(refuse)](WorkLanes::Refusal why) {
    http->Post([this, refuse, why] {
      refuse(ErrorAnswer(why == WorkLanes::Refusal::kStopping
                             ? StoppingError()
                             : Overloaded("too many requests are being read")));
    });
  };
  lanes->Add({.client = client, .bytes = bytes, .run = std::move(run), .refuse = refuse_there});
}

void Server::Impl::Work(HttpRequest request, std::shared_ptr<Reply> reply, Compute compute) {
  if (!TakesBody(request, reply.get())) return;
  const size_t bytes = request.body.size();
  const std::string client = ClientOf(request);
  auto run = [this, request = std::move(request), reply, compute = std::move(compute)] {
    ApiResult<Json> body = ParseObject(request.body);
    HttpAnswer answer = body.ok() ? compute(*body) : ErrorAnswer(body.error());
    http->Post([answer = std::move(answer), reply]() mutable { reply->Send(std::move(answer)); });
  };
  AddWork(client, bytes, std::move(run),
          [reply](HttpAnswer refusal) { reply->Send(std::move(refusal)); });
}

void Server::Impl::Complete(Api api, HttpRequest request, std::shared_ptr<Reply> reply) {
  if (!TakesBody(request, reply.get())) return;
  ApiResult<std::shared_ptr<Gate::Ticket>> ticket = gate->Enter(request);
  reply = Gate::WithHeaders(std::move(reply), gate->LimitHeaders(request));
  if (!ticket.ok()) return reply->Send(ErrorAnswer(ticket.error()));
  const auto served = std::make_shared<ServedRequest>(
      ServedRequest{.api = api, .http = std::move(request), .reply = reply, .ticket = *ticket});
  const std::string_view id = served->http.header("x-request-id");
  if (IsRequestId(id)) served->request_id = id;
  served->client = ClientOf(served->http);
  served->line = LineOf(served->http);
  const auto run = [this, served] {
    ApiResult<CompletionRequest> read = ReadBody(*served);
    const size_t body_bytes = std::exchange(served->http, {}).body.size();
    if (!read.ok()) return Refuse(served, ErrorAnswer(read.error()));
    served->completion = *std::move(read);
    if (!served->completion.session_id.empty()) {
      return http->Post([this, served] { EnterSession(served); });
    }
    const size_t text_bytes = TextBytes(served->completion);
    WorkLanes::LaneOf(text_bytes) <= WorkLanes::LaneOf(body_bytes) ? Prepare(served)
                                                                   : AddPrepare(served);
  };
  AddWork(served->client, served->http.body.size(), run,
          [this, served](HttpAnswer refusal) { Refuse(served, std::move(refusal)); });
}

void Server::Impl::Refuse(const Served& served, HttpAnswer answer) {
  served->ticket.reset();
  http->Post([reply = served->reply, answer = std::move(answer)]() mutable {
    reply->Send(std::move(answer));
  });
}

ApiResult<CompletionRequest> Server::Impl::ReadBody(const ServedRequest& served) const {
  EBB_ASSIGN_OR_RETURN(const Json body, ParseObject(served.http.body));
  EBB_ASSIGN_OR_RETURN(CompletionRequest request,
                       ReadRequest(served.api, body, options.defaults, responses.get()));
  LeaveOutTools(*model, &request);
  if (request.reports_memory && served.api != Api::kChat && served.api != Api::kText) {
    request.reports_memory = false;
    request.reports_tokens = request.llama != nullptr;
    request.ignored.emplace_back("ebb.memory");
  }
  EBB_ASSIGN_OR_RETURN(request.priority, served.ticket->PriorityFor(request.priority));
  request.cache_salt = TenantOf(served.ticket->key()) + '\n' + request.cache_salt;
  if (auto error = TakeSession({.session = std::string(served.http.header("x-ebb-session")),
                                .hint = std::string(served.http.header("x-session-id"))},
                               keeper != nullptr, &request)) {
    return *std::move(error);
  }
  if (auto error = TakeBegunAnswer(&request)) return *std::move(error);
  return request;
}

void Server::Impl::Prepare(const Served& served) {
  CompletionRequest& request = served->completion;
  if (const auto too_long =
          CheckTextFits(request, model->longest_token_bytes(), ContextBound(*model, request))) {
    return Refuse(served, ErrorAnswer(*too_long));
  }
  ApiResult<std::vector<Job>> jobs = server::Prepare(*model, &request);
  if (!jobs.ok()) return Refuse(served, ErrorAnswer(jobs.error()));
  served->jobs = *std::move(jobs);
  http->Post([this, served] { Submit(served); });
}

void Server::Impl::AddPrepare(const Served& served) {
  AddWork(
      served->client, TextBytes(served->completion), [this, served] { Prepare(served); },
      [this, served](HttpAnswer refusal) { Refuse(served, std::move(refusal)); });
}

void Server::Impl::PrepareWithoutSession(const Served& served) {
  CompletionRequest& request = served->completion;
  served->session.reset();
  request.session_id.clear();
  std::ranges::move(std::exchange(request.session_hints, {}), std::back_inserter(request.ignored));
  AddPrepare(served);
}

void Server::Impl::EnterSession(const Served& served) {
  const CompletionRequest& request = served->completion;
  const store::SessionName name = {TenantOf(served->ticket->key()), request.session_id};
  const SessionTraits traits = {.model = fingerprint,
                                .policy = DescribePolicy(request.session),
                                .tiers = DescribeTiers(options.defaults.engine, request.session)};
  const bool is_hint = !request.session_hints.empty();
  const auto entered_session = [this, served, is_hint](auto entered) {
    if (!entered.ok()) {
      return is_hint ? PrepareWithoutSession(served) : Refuse(served, ErrorAnswer(entered.error()));
    }
    served->session = *std::move(entered);
    if (!stopping) return PrepareInSession(served);
    keeper->Leave(served->session);
    Refuse(served, ErrorAnswer(StoppingError()));
  };
  keeper->Enter(name, traits, entered_session, /*waits=*/!is_hint);
}

void Server::Impl::PrepareInSession(const Served& served) {
  const auto run = [this, served] {
    CompletionRequest& request = served->completion;
    // Keeps a copy for the case that the hinted session cannot be used.
    const bool is_hint = !request.session_hints.empty();
    auto whole = is_hint ? std::optional(request) : std::nullopt;
    ApiResult<std::vector<Job>> jobs = PrepareTurn(*model, served->session->record, &request);
    if (jobs.ok()) {
      served->jobs = *std::move(jobs);
      return http->Post([this, served] { SubmitTurn(served); });
    }
    if (is_hint) request = *std::move(whole);
    http->Post([this, served, is_hint, error = jobs.error()] {
      keeper->Leave(served->session);
      is_hint ? PrepareWithoutSession(served) : Refuse(served, ErrorAnswer(error));
    });
  };
  const SessionRecord& record = served->session->record;
  const size_t bytes = TextBytes(served->completion) + TextBytes(record.before) +
                       TextBytes(record.asked) + record.text.size();
  AddWork(served->client, bytes, run, [this, served](HttpAnswer refusal) {
    keeper->Leave(served->session);
    Refuse(served, std::move(refusal));
  });
}

void Server::Impl::SubmitTurn(const Served& served) {
  std::optional<JobUpdate> said = std::exchange(served->completion.said, std::nullopt);
  if (!said.has_value()) return Submit(served);
  keeper->Leave(served->session);
  Await(served);
  served->exchange->Take(/*choice=*/0, *std::move(said));
  Advance(served);
}

void Server::Impl::Submit(const Served& served) {
  for (Job& job : served->jobs) {
    served->job_ids.push_back(job.id = next_job++);
    job.owner = served->ticket->owner();
  }
  const auto& use = served->session;
  const bool is_ours =
      use == nullptr || keeper->Begin(use, served->job_ids.front(), &*served->jobs.front().work);
  if (const Status status = driver->Submit(std::exchange(served->jobs, {})); !status.ok()) {
    if (use != nullptr) keeper->Leave(use);
    const bool is_full = status.code() == StatusCode::kQueueFull;
    return Refuse(served, ErrorAnswer(is_full ? Overloaded(status.message()) : ErrorFrom(status)));
  }
  if (!is_ours) driver->Cancel(served->job_ids.front());
  Await(served);
}

void Server::Impl::Await(const Served& served) {
  CompletionRequest& request = served->completion;
  AddIgnored(&request);
  const std::string id = MakeId(served->api, run_id, next_answer++);
  Headers& headers = served->headers;
  if (served->request_id.empty()) headers.emplace_back("X-Request-Id", id);
  if (!request.ignored.empty()) headers.emplace_back("X-Ebb-Ignored", InHeader(request.ignored));
  if (request.prompt != nullptr && !request.prompt->mended.empty()) {
    headers.emplace_back("X-Ebb-Mended", InHeader(request.prompt->mended));
  }
  served->exchange = MakeExchange(served->api, model,
                                  {.request = std::move(request),
                                   .id = id,
                                   .model_id = options.defaults.model_id,
                                   .created = static_cast<int64_t>(std::time(nullptr)),
                                   .fingerprint = fingerprint,
                                   .reasoning_field = options.reasoning_field});
  if (served->line != nullptr && served->request_id.empty()) served->line->SetId(id);
  for (size_t i = 0; i < served->job_ids.size(); ++i) running[served->job_ids[i]] = {served, i};
  served->reply->OnDisconnect([this, weak = std::weak_ptr<ServedRequest>(served)] {
    if (const auto gone = weak.lock()) End(gone.get());
  });
}

void Server::Impl::Take(std::vector<JobUpdate> updates) {
  std::set<Served> touched;
  for (JobUpdate& update : updates) {
    // The keeper must also get the updates of jobs whose client has disconnected.
    if (keeper != nullptr) keeper->Take(&update);
    const auto found = running.find(update.id);
    if (found == running.end()) continue;
    const auto [served, choice] = found->second;
    if (update.end.has_value()) {
      const JobEnd& end = *update.end;
      const auto choices = static_cast<size_t>(served->exchange->request().num_choices);
      served->ticket->Charge(end.prompt_tokens - end.cached_tokens + end.generated_tokens);
      if (served->line != nullptr) served->line->AddJob(end, /*is_first=*/choice % choices == 0);
      running.erase(found);
    }
    if (served->is_over) continue;
    served->exchange->Take(choice, std::move(update));
    touched.insert(served);
  }
  for (const Served& served : touched) Advance(served);
}

void Server::Impl::Advance(const Served& served) {
  Exchange& exchange = *served->exchange;
  Reply& reply = *served->reply;
  const bool is_over = exchange.is_over();
  const auto& answer = exchange.request().responses;
  if (is_over && answer != nullptr && answer->stores && !exchange.error().has_value()) {
    responses->Put(exchange.id(), answer->before, answer->input, exchange.Whole());
  }
  if (served->has_begun && served->line != nullptr && exchange.error().has_value()) {
    served->line->SetError(LoggedError(*exchange.error()));
  }
  if (exchange.request().streams && !served->has_begun && exchange.is_accepted()) {
    served->has_begun = true;
    Headers headers = served->headers;
    headers.emplace_back("Cache-Control", "no-cache");
    headers.emplace_back("X-Accel-Buffering", "no");
    reply.Stream({.content_type = "text/event-stream; charset=utf-8", .headers = headers},
                 [served] { return served->exchange->TakeEvents(); });
  }
  if (served->has_begun) {
    reply.NotifyData();
    if (is_over) reply.EndStream();
  } else if (is_over) {
    HttpAnswer whole = exchange.error().has_value() ? ErrorAnswer(*exchange.error())
                                                    : JsonAnswer(exchange.Whole());
    for (const auto& header : served->headers) whole.headers.push_back(header);
    reply.Send(std::move(whole));
  }
  if (is_over) End(served.get());
}

void Server::Impl::End(ServedRequest* served) {
  if (std::exchange(served->is_over, true)) return;
  for (const JobId id : served->job_ids) {
    if (running.contains(id)) driver->Cancel(id);
  }
}

std::vector<Served> Server::Impl::FindRequests(const HttpRequest& request,
                                               std::string_view id) const {
  std::set<Served> found;
  for (const auto& [job, entry] : running) {
    const Served& served = entry.first;
    if (served->is_over || !gate->MaySee(request, *served->ticket)) continue;
    if (served->exchange->id() == id || served->request_id == id) found.insert(served);
  }
  return {found.begin(), found.end()};
}

HttpAnswer Server::Impl::CancelRequest(const HttpRequest& request, const std::string& id) {
  const auto found = FindRequests(request, id);
  if (found.empty()) {
    return ErrorAnswer({.status = 404,
                        .message = "no request of this id is being answered",
                        .code = "request_not_found"});
  }
  for (const Served& one : found) {
    // Clients must not retry, which would undo this cancellation.
    one->headers.emplace_back("X-Should-Retry", "false");
    one->exchange->EndWith(
        {.status = 499, .message = "the request was cancelled", .code = "cancelled"});
    Advance(one);
  }
  return JsonAnswer({{"id", id}, {"object", "request"}, {"cancelled", true}});
}

void Server::Impl::ExplainToken(const HttpRequest& request, const std::shared_ptr<Reply>& reply,
                                const std::string& id) {
  const auto found = FindRequests(request, id);
  std::optional<JobId> job;
  if (!found.empty() && !found.front()->job_ids.empty()) job = found.front()->job_ids.front();
  AnswerReasons(request.path, job, std::bind_front(&Impl::Explain, this),
                [reply](HttpAnswer answer) { reply->Send(std::move(answer)); });
}

HttpAnswer Server::Impl::Control(const HttpRequest& request) {
  constexpr size_t kMostBytes = 4096;
  if (!IsJson(request.content_type)) return ErrorAnswer(OtherContent());
  if (request.body.size() > kMostBytes) {
    return ErrorAnswer(Invalid(fmt::format("expected at most {} bytes", kMostBytes), ""));
  }
  const ApiResult<Json> body = ParseObject(request.body);
  if (!body.ok()) return ErrorAnswer(body.error());
  std::optional<ApiError> error;
  JsonFields fields(*body, "", &error);
  const auto id = fields.Text("id");
  const auto action = fields.Text("action");
  if (!id.has_value() || id->empty()) fields.Fail("id", "expected an id", "missing_field");
  if (action != "reasoning_end") fields.Fail("action", "expected reasoning_end");
  if (error.has_value()) return ErrorAnswer(*error);
  const auto found = FindRequests(request, *id);
  if (found.empty()) {
    return JsonAnswer({{"success", false}, {"message", "no request of this id is being answered"}});
  }
  for (const Served& one : found) {
    for (const JobId job : one->job_ids) driver->EndThought(job);
  }
  return JsonAnswer({{"success", true}});
}

}  // namespace ebb::server
