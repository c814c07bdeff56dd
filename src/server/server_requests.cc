// Requests that the engine answers: prepares them, submits them, delivers their updates and cancels
// them.
#include <algorithm>
#include <ctime>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/server/api/json_fields.h"
#include "src/server/api/openai/text_bytes.h"
#include "src/server/server_impl.h"

namespace ebb::server {
namespace {

// A part of a tool's schema as the interface names it; `part` begins "tools[1].parameters".
std::string WidenedPart(Api interface, std::string part) {
  const size_t at = part.find(".parameters");
  if (at == std::string::npos || interface == Api::kResponses) return part;
  const std::string name = interface == Api::kMessages ? ".input_schema" : ".function.parameters";
  return part.replace(at, std::string_view(".parameters").size(), name);
}

// Returns the fields of template arguments of which the template reads none.
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
  exchange.call_seed = request->prepared.call_seed;
  if (exchange.prompt == nullptr) return;
  std::ranges::copy(UnusedFields(*exchange.prompt, request->argument_fields),
                    std::back_inserter(request->ignored));
  for (const std::string& part : exchange.prompt->widened) {
    const std::string shown = UnderToolPaths(part, request->tool_paths);
    request->ignored.push_back(WidenedPart(request->interface, shown));
  }
}

// An error about a tool, under the client's path of it.
ApiError UnderPaths(ApiError error, const ToolPaths& paths) {
  const std::string shown = UnderToolPaths(error.param, paths);
  if (shown == error.param) return error;
  if (error.message.starts_with(error.param)) error.message.replace(0, error.param.size(), shown);
  error.param = shown;
  return error;
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
  const std::string_view id = request.header("x-request-id");
  const std::string client = ClientOf(request);
  Asker asker = {.ticket = *std::move(ticket),
                 .request_id = IsRequestId(id) ? std::string(id) : "",
                 .client = client,
                 .line = LineOf(request)};
  const size_t bytes = request.body.size();
  // The ticket must not outlive the answer here: its key may be allowed one request at a time.
  auto run = [this, api, request = std::move(request), asker = std::move(asker), reply]() mutable {
    ApiResult<PreparedRequest> read = ReadBody(api, request, std::move(asker));
    if (!read.ok()) {
      return http->Post(
          [reply, error = std::move(read).error()] { reply->Send(ErrorAnswer(error)); });
    }
    const auto made = std::make_shared<PreparedRequest>(*std::move(read));
    if (!made->completion->session_id.empty()) {
      return http->Post([this, made, reply] { EnterSession(made, reply); });
    }
    const size_t text_bytes = TextBytes(*made->completion);
    if (WorkLanes::LaneOf(text_bytes) <= WorkLanes::LaneOf(request.body.size())) {
      return PrepareRead(made, reply);
    }
    AddPrepare(made, reply);
  };
  AddWork(client, bytes, std::move(run),
          [reply](HttpAnswer refusal) { reply->Send(std::move(refusal)); });
}

ApiResult<PreparedRequest> Server::Impl::ReadBody(Api api, const HttpRequest& http, Asker asker) {
  EBB_ASSIGN_OR_RETURN(Json body, ParseObject(http.body));
  EBB_ASSIGN_OR_RETURN(ApiRequest in_chat, ReadApi(api, std::move(body), responses));
  const Endpoint endpoint = EndpointOf(api);
  ApiResult<CompletionRequest> read = ReadRequest(endpoint, in_chat.body, options.defaults);
  if (!read.ok()) {
    return in_chat.renamed(UnderPaths(std::move(read).error(), in_chat.tool_paths));
  }
  auto& request = *read;
  LeaveOutTools(*model, &request);
  if (request.tells_memory && api != Api::kChat && api != Api::kText) {
    request.tells_memory = request.tells_tokens = false;
    request.ignored.emplace_back("ebb.memory");
  }
  if (in_chat.apply) {
    if (auto error = in_chat.apply(*model, &request)) return *std::move(error);
  }
  EBB_ASSIGN_OR_RETURN(request.priority, asker.ticket->PriorityFor(request.priority));
  request.cache_salt = TenantOf(asker.ticket->key()) + '\n' + request.cache_salt;
  if (auto error = TakeSession({.session = std::string(http.header("x-ebb-session")),
                                .hint = std::string(http.header("x-session-id"))},
                               keeper != nullptr, &request)) {
    return *std::move(error);
  }
  if (auto error = TakeBegunAnswer(&request)) return in_chat.renamed(*std::move(error));
  std::vector<std::string> ignored = std::move(in_chat.ignored);
  for (const std::string& field : request.ignored) {
    ignored.push_back(UnderToolPaths(field, in_chat.tool_paths));
  }
  const ApiError in_format = in_chat.renamed({.param = request.format_field});
  for (auto& [name, field] : request.argument_fields) {
    field = in_chat.renamed({.param = field}).param;
  }
  // From here on tools are counted without those that were left out.
  ToolPaths tool_paths = std::move(request.tool_paths);
  for (std::string& path : tool_paths) path = UnderToolPaths(path, in_chat.tool_paths);
  in_chat.renamed = [tool_paths, renamed = std::move(in_chat.renamed)](ApiError error) {
    return renamed(UnderPaths(std::move(error), tool_paths));
  };
  return PreparedRequest{
      .interface = api,
      .asker = std::move(asker),
      .exchange = {.endpoint = endpoint,
                   .model_id = options.defaults.model_id,
                   .created = static_cast<int64_t>(std::time(nullptr)),
                   .fingerprint = fingerprint,
                   .streams = request.streams,
                   .includes_usage = request.includes_usage,
                   .tells_hash = request.tells_hash,
                   .tells_memory = request.tells_memory,
                   .choices_per_prompt = static_cast<size_t>(request.num_choices),
                   .tool_names = request.tool_names,
                   .tells_function_call = request.tells_function_call,
                   .reasoning_field = options.reasoning_field,
                   .drawn_seed = request.drawn_seed,
                   .format_field = in_format.param},
      .ignored = std::move(ignored),
      .tool_paths = std::move(tool_paths),
      .argument_fields = request.argument_fields,
      .api = std::move(in_chat),
      .completion = std::move(request)};
}

void Server::Impl::PrepareRead(const std::shared_ptr<PreparedRequest>& request,
                               const std::shared_ptr<Reply>& reply) {
  CompletionRequest completion = *std::exchange(request->completion, std::nullopt);
  std::optional<ApiError> too_long =
      CheckTextFits(completion, model->longest_token_bytes(), ContextBound(*model, completion));
  ApiResult<Prepared> prepared = too_long.has_value() ? ApiResult<Prepared>(*std::move(too_long))
                                                      : Prepare(*model, std::move(completion));
  if (!prepared.ok()) {
    const ApiError renamed = request->api.renamed(std::move(prepared).error());
    return http->Post([reply, renamed] { reply->Send(ErrorAnswer(renamed)); });
  }
  if (request->api.note) request->api.note(*model, prepared->jobs);
  Describe(*std::move(prepared), request.get());
  http->Post([this, request, reply] { Submit(std::move(*request), reply, nullptr); });
}

void Server::Impl::AddPrepare(const std::shared_ptr<PreparedRequest>& request,
                              const std::shared_ptr<Reply>& reply) {
  AddWork(
      request->asker.client, TextBytes(*request->completion),
      [this, request, reply] { PrepareRead(request, reply); },
      [reply](HttpAnswer refusal) { reply->Send(std::move(refusal)); });
}

void Server::Impl::PrepareWithoutSession(const std::shared_ptr<PreparedRequest>& request,
                                         const std::shared_ptr<Reply>& reply) {
  CompletionRequest& completion = *request->completion;
  completion.session_id.clear();
  std::ranges::move(std::exchange(completion.session_hints, {}),
                    std::back_inserter(request->ignored));
  AddPrepare(request, reply);
}

void Server::Impl::EnterSession(const std::shared_ptr<PreparedRequest>& request,
                                const std::shared_ptr<Reply>& reply) {
  const CompletionRequest& turn = *request->completion;
  const store::SessionName name = {TenantOf(request->asker.ticket->key()), turn.session_id};
  const SessionTraits traits = {.model = fingerprint,
                                .policy = DescribePolicy(turn.session),
                                .tiers = DescribeTiers(turn.session)};
  const bool is_hint = !turn.session_hints.empty();
  const auto entered_session = [this, request, reply, is_hint](auto entered) {
    if (!entered.ok()) {
      return is_hint ? PrepareWithoutSession(request, reply)
                     : reply->Send(ErrorAnswer(entered.error()));
    }
    const auto use = *std::move(entered);
    if (stopping) {
      keeper->Leave(use);
      return reply->Send(ErrorAnswer(StoppingError()));
    }
    const auto run = [this, request, reply, use, is_hint] {
      CompletionRequest& turn = *request->completion;
      auto made = std::make_shared<ApiResult<Prepared>>(
          PrepareTurn(*model, is_hint ? turn : std::move(turn), use->record));
      http->Post([this, request, reply, use, made, is_hint] {
        if (made->ok() || !is_hint)
          return SubmitTurn(std::move(*request), std::move(*made), reply, use);
        keeper->Leave(use);
        PrepareWithoutSession(request, reply);
      });
    };
    const size_t bytes = TextBytes(*request->completion) + TextBytes(use->record.before) +
                         TextBytes(use->record.asked) + use->record.text.size();
    AddWork(request->asker.client, bytes, run, [this, reply, use](HttpAnswer refusal) {
      keeper->Leave(use);
      reply->Send(std::move(refusal));
    });
  };
  keeper->Enter(name, traits, entered_session, /*waits=*/!is_hint);
}

void Server::Impl::SubmitTurn(PreparedRequest request, ApiResult<Prepared> made,
                              const std::shared_ptr<Reply>& reply,
                              const std::shared_ptr<SessionUse>& use) {
  if (!made.ok()) {
    keeper->Leave(use);
    return reply->Send(ErrorAnswer(request.api.renamed(made.error())));
  }
  Describe(*std::move(made), &request);
  std::optional<JobUpdate> said = std::move(request.prepared.said);
  if (!said.has_value()) return Submit(std::move(request), reply, use);
  keeper->Leave(use);
  request.exchange.drawn_seed.reset();  // the answer had another one
  const JobId id = next_job++;
  Await(std::move(request), {id}, reply);
  running.erase(id);  // repeating a stored answer costs nothing
  said->id = id;
  std::vector<JobUpdate> updates;
  updates.push_back(*std::move(said));
  Take(std::move(updates));
}

void Server::Impl::Submit(PreparedRequest request, const std::shared_ptr<Reply>& reply,
                          const std::shared_ptr<SessionUse>& use) {
  std::vector<JobId> ids;
  for (Job& job : request.prepared.jobs) {
    ids.push_back(job.id = next_job++);
    job.owner = request.asker.ticket->owner();
  }
  const bool is_ours =
      use == nullptr || keeper->Begin(use, ids.front(), &*request.prepared.jobs.front().work);
  if (const Status status = driver->Submit(std::move(request.prepared.jobs)); !status.ok()) {
    if (use != nullptr) keeper->Leave(use);
    const bool is_full = status.code() == StatusCode::kQueueFull;
    return reply->Send(ErrorAnswer(is_full ? Overloaded(status.message()) : ErrorFrom(status)));
  }
  if (!is_ours) driver->Cancel(ids.front());
  Await(std::move(request), std::move(ids), reply);
}

std::shared_ptr<Pending> Server::Impl::Await(PreparedRequest request, std::vector<JobId> ids,
                                             const std::shared_ptr<Reply>& reply) {
  request.exchange.id = MakeId(request.interface, run_id, next_answer++);
  Headers headers;
  Asker& asker = request.asker;
  if (asker.request_id.empty()) headers.emplace_back("X-Request-Id", request.exchange.id);
  if (!request.ignored.empty()) headers.emplace_back("X-Ebb-Ignored", InHeader(request.ignored));
  if (const auto& prompt = request.exchange.prompt; prompt != nullptr && !prompt->mended.empty()) {
    headers.emplace_back("X-Ebb-Mended", InHeader(prompt->mended));
  }
  const bool streams = request.exchange.streams;
  const std::string id = request.exchange.id;
  const size_t choices_per_prompt = request.exchange.choices_per_prompt;
  const auto answered = std::make_shared<Pending>(
      Pending{.exchange = request.api.exchange(model, std::move(request.exchange)),
              .reply = reply,
              .jobs = ids,
              .streams = streams,
              .keep = std::move(request.api.keep),
              .headers = std::move(headers),
              .id = id,
              .request_id = std::move(asker.request_id),
              .ticket = asker.ticket,
              .line = asker.line});
  if (answered->line != nullptr && answered->request_id.empty()) answered->line->SetId(id);
  for (size_t i = 0; i < ids.size(); ++i) {
    pending[ids[i]] = {answered, i};
    running[ids[i]] = {asker.ticket, asker.line, i % choices_per_prompt == 0};
  }
  reply->OnDisconnect([this, weak = std::weak_ptr<Pending>(answered)] {
    if (const auto gone = weak.lock()) Forget(*gone);
  });
  return answered;
}

void Server::Impl::Take(std::vector<JobUpdate> updates) {
  std::set<std::shared_ptr<Pending>> touched;
  for (JobUpdate& update : updates) {
    if (update.end.has_value()) {
      const auto job = running.extract(update.id);
      const JobEnd& end = *update.end;
      if (!job.empty()) {
        const auto& [ticket, line, is_first] = job.mapped();
        ticket->Charge(end.prompt_tokens - end.cached_tokens + end.generated_tokens);
        if (line != nullptr) line->AddJob(end, is_first);
      }
    }
    // The keeper hears of jobs whose client has gone, too.
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
  if (request->has_begun && request->line != nullptr && exchange.error().has_value()) {
    request->line->SetError(LoggedError(*exchange.error()));
  }
  if (request->streams && !request->has_begun && exchange.is_accepted()) {
    request->has_begun = true;
    Headers headers = request->headers;
    headers.emplace_back("Cache-Control", "no-cache");
    headers.emplace_back("X-Accel-Buffering", "no");
    reply.Stream({.content_type = "text/event-stream; charset=utf-8", .headers = headers},
                 [request] { return request->exchange->TakeEvents(); });
  }
  if (request->has_begun) {
    reply.NotifyData();
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
  const std::string id = DecodedPart(std::string_view(request.path).substr(kRequests.size()));
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
  for (const std::shared_ptr<Pending>& one : found) {
    for (const JobId job : one->jobs) driver->EndThought(job);
  }
  return JsonAnswer({{"success", true}});
}

}  // namespace ebb::server
