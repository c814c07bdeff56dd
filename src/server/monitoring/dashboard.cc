#include "src/server/monitoring/dashboard.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>

namespace ebb::server {

namespace {

constexpr size_t kMostWatchers = 16;
// kBusySeconds is the time between two snapshots while there are requests, kIdleSeconds while
// there are none.
constexpr double kBusySeconds = 0.25;
constexpr double kIdleSeconds = 1;

std::string_view PhaseName(Phase phase) {
  switch (phase) {
    case Phase::kWaiting:
      return "waiting";
    case Phase::kReading:
      return "reading";
    case Phase::kDecoding:
      return "decoding";
    case Phase::kParked:
      break;
  }
  return "parked";
}

// Returns the resource that a job waits for: {"cause": "t0", "bytes": 3145728}; null: it does not
// wait.
Json WaitJson(const std::optional<Wait>& wait) {
  if (!wait.has_value()) return nullptr;
  switch (wait->cause) {
    case WaitCause::kTurn:
      return {{"cause", "turn"}, {"behind", wait->behind}};
    case WaitCause::kRunning:
      return {{"cause", "running"}};
    case WaitCause::kT0:
      return {{"cause", "t0"}, {"bytes", wait->bytes}};
    case WaitCause::kT1:
      return {{"cause", "t1"}, {"bytes", wait->bytes}};
    case WaitCause::kT2:
      return {{"cause", "t2"}, {"bytes", wait->bytes}};
    case WaitCause::kStoredPrompt:
      break;
  }
  return {{"cause", "stored_prompt"}};
}

Json JobJson(const JobView& job) {
  const JobProgress& progress = job.progress;
  const double seconds = job.decode_seconds;
  return {{"id", job.id},
          {"state", PhaseName(job.phase)},
          {"waits_for", WaitJson(job.wait)},
          {"priority", job.priority},
          {"age_seconds", job.age_seconds},
          {"prompt_tokens", job.prompt_tokens},
          {"prompt_left", job.prompt_left},
          {"generated_tokens", progress.generated_tokens},
          {"thought_tokens", progress.thought_tokens},
          {"in_thought", progress.in_thought},
          {"tokens_per_second",
           seconds > 0 ? static_cast<double>(progress.generated_tokens) / seconds : 0.0},
          {"lossless", job.is_lossless},
          {"parks", job.num_parks},
          {"t0_share", job.t0_share},
          {"t0_floor_bytes", job.t0_floor_bytes},
          {"rows", job.rows},
          {"page_bytes", job.page_bytes},
          {"rows_read_share", job.selection.ReadShare()},
          {"unread_mass", job.selection.unread_mass},
          {"sampled_unread_mass", job.selection.sampled_unread_mass},
          {"samples", job.selection.num_samples},
          {"strip", job.strip}};
}

// Parts holds the T0 bytes that running requests need and have (`floor`), need and do not have yet
// (`reserved`) and could give up (`elastic`), and the T1 bytes that parked ones hold.
struct Parts {
  uint64_t floor = 0;
  uint64_t reserved = 0;
  uint64_t elastic = 0;
  uint64_t parked = 0;
};

Parts PartsOf(const Snapshot& snapshot) {
  Parts parts;
  for (const JobView& job : snapshot.jobs) {
    if (job.phase == Phase::kParked) parts.parked += job.page_bytes[1];
    if (job.phase != Phase::kReading && job.phase != Phase::kDecoding) continue;
    const uint64_t held = job.page_bytes[0];
    const uint64_t floor = std::min(held, job.t0_floor_bytes);
    parts.floor += floor;
    parts.reserved += job.t0_floor_bytes - floor;
    parts.elastic += held - floor;
  }
  return parts;
}

Json TiersJson(const Figures& figures) {
  Json tiers = Json::array();
  for (int t = 0; t < kNumTiers - 1; ++t) {
    const ArenaAccounting& arena = figures.arenas[t];
    tiers.push_back({{"name", TierName(static_cast<Tier>(t))},
                     {"used_bytes", arena.used_bytes},
                     {"reserved_bytes", arena.reserved_bytes},
                     {"peak_bytes", arena.peak_bytes},
                     {"pledged_bytes", arena.pledged_bytes},
                     {"cap_bytes", arena.cap_bytes},
                     {"rows", figures.rows[t]}});
  }
  return tiers;
}

HttpAnswer NotFound(std::string message) {
  return ErrorAnswer({.status = 404, .message = std::move(message), .code = "not_found"});
}

// FatesPath has the numbers in a path "12" or "12/tokens/500": a job's id and the first token
// wanted. ParseFatesPath() returns nullopt for any other text.
struct FatesPath {
  JobId id = 0;
  size_t from = 0;
};
std::optional<FatesPath> ParseFatesPath(std::string_view path) {
  const auto number = [&path](auto* value) {
    const auto [end, error] = std::from_chars(path.data(), path.data() + path.size(), *value);
    path.remove_prefix(static_cast<size_t>(end - path.data()));
    return error == std::errc();
  };
  FatesPath parsed;
  if (!number(&parsed.id)) return std::nullopt;
  if (path.empty()) return parsed;
  constexpr std::string_view kTokens = "/tokens/";
  if (!path.starts_with(kTokens)) return std::nullopt;
  path.remove_prefix(kTokens.size());
  if (!number(&parsed.from) || !path.empty()) return std::nullopt;
  return parsed;
}

}  // namespace

Json StatusJson(const Snapshot& snapshot, const DashboardSetting& setting) {
  const Figures& figures = snapshot.figures;
  const Parts parts = PartsOf(snapshot);
  Json json = {{"model", setting.model_id},
               {"shows_text", setting.mode == DashboardMode::kText},
               {"uptime_seconds", snapshot.now},
               {"requests",
                {{"waiting", figures.waiting},
                 {"reading", figures.reading},
                 {"decoding", figures.decoding},
                 {"parked", figures.parked}}},
               {"predicted_wait_seconds", figures.predicted_wait},
               {"seconds_per_step", figures.seconds_per_step},
               {"max_stall_seconds", setting.max_stall_seconds},
               {"generated_tokens", figures.generated_tokens},
               {"prompt_tokens", figures.prompt_tokens},
               {"steps", figures.steps},
               {"parks", figures.parks},
               {"resumes", figures.resumes},
               {"tiers", TiersJson(figures)},
               {"t0_floor_bytes", parts.floor},
               {"t0_reserved_bytes", parts.reserved},
               {"t0_elastic_bytes", parts.elastic},
               {"parked_bytes", parts.parked},
               {"jobs", Json::array()}};
  for (const JobView& job : snapshot.jobs) json["jobs"].push_back(JobJson(job));
  return json;
}

Json FatesJson(const TokenFates& fates, const Model* model, size_t from) {
  Json json = {{"id", fates.id},
               {"prompt_tokens", fates.prompt_tokens},
               {"generated_tokens", fates.progress.generated_tokens},
               {"thought_tokens", fates.progress.thought_tokens},
               {"in_thought", fates.progress.in_thought},
               {"tiers", fates.tiers},
               {"steps", fates.num_steps},
               {"history", fates.history}};
  if (model == nullptr) return json;
  json["from"] = from;
  Json& texts = json["texts"] = Json::array();
  for (size_t i = from; i < fates.tokens.size(); ++i) {
    texts.push_back(model->TokenText(fates.tokens[i], Model::ControlTokens::kShow));
  }
  return json;
}

Dashboard::Dashboard(std::shared_ptr<const Model> model, DashboardSetting setting,
                     DashboardSource source)
    : model_(std::move(model)), setting_(std::move(setting)), source_(std::move(source)) {}

void Dashboard::AddRoutes(std::vector<Route>* routes) {
  if (setting_.mode == DashboardMode::kOff) return;
  const auto add_feed = [&](const char* path, auto send) {
    routes->push_back({"GET", path, Access::kAdmin,
                       [this, send](const HttpRequest&, const std::shared_ptr<Reply>& reply,
                                    const std::string& part) { send(this, reply, part); }});
  };
  add_feed("/v1/ebb/status",
           [](auto* self, const auto& reply, const auto&) { self->SendStatus(reply); });
  add_feed("/v1/ebb/events",
           [](auto* self, const auto& reply, const auto&) { self->Watch(reply); });
  add_feed("/v1/ebb/requests/**",
           [](auto* self, const auto& reply, const auto& part) { self->SendFates(part, reply); });
}

void Dashboard::SendStatus(const std::shared_ptr<Reply>& reply) const {
  source_.look([this, reply](const Snapshot& snapshot) {
    reply->Send({.body = Dump(StatusJson(snapshot, setting_))});
  });
}

void Dashboard::SendFates(std::string_view path, const std::shared_ptr<Reply>& reply) const {
  const std::optional<FatesPath> parsed = ParseFatesPath(path);
  if (!parsed.has_value()) {
    return reply->Send(
        NotFound("expected /v1/ebb/requests/NUMBER or /v1/ebb/requests/NUMBER/tokens/FIRST"));
  }
  source_.trace(parsed->id, [this, reply, from = parsed->from](const auto& fates) {
    if (!fates.has_value()) {
      return reply->Send(NotFound("the request has not begun, or is over"));
    }
    const bool shows_text = setting_.mode == DashboardMode::kText;
    reply->Send({.body = Dump(FatesJson(*fates, shows_text ? model_.get() : nullptr, from))});
  });
}

void Dashboard::Watch(const std::shared_ptr<Reply>& reply) {
  if (is_closed_) return reply->Send(ErrorAnswer(StoppingError()));
  if (watchers_.size() >= kMostWatchers) {
    return reply->Send(
        ErrorAnswer({.status = 503,
                     .message = fmt::format(
                         "the dashboard has {} viewers already, which is the limit", kMostWatchers),
                     .code = "too_many_watchers"}));
  }
  const auto watcher = std::make_shared<Watcher>(Watcher{.reply = reply});
  watchers_.push_back(watcher);
  reply->OnDisconnect([this, gone = watcher.get()] {
    std::erase_if(watchers_, [&](const auto& one) { return one.get() == gone; });
  });
  reply->Stream({.content_type = "text/event-stream; charset=utf-8",
                 .headers = {{"Cache-Control", "no-cache"}, {"X-Accel-Buffering", "no"}}},
                // Holds the watcher weakly: the watcher owns the reply, which owns this function,
                // so that a strong pointer would leak both.
                [watching = std::weak_ptr(watcher)]() -> std::string {
                  const auto one = watching.lock();
                  return one == nullptr ? "" : std::exchange(one->next, {});
                });
  if (!std::exchange(ticking_, true)) Tick();
}

void Dashboard::Tick() {
  if (watchers_.empty()) {
    ticking_ = false;
    return;
  }
  source_.look([this](const Snapshot& snapshot) {
    Tell(snapshot);
    if (watchers_.empty()) {
      ticking_ = false;
      return;
    }
    source_.later(snapshot.jobs.empty() ? kIdleSeconds : kBusySeconds, [this] { Tick(); });
  });
}

void Dashboard::Tell(const Snapshot& snapshot) {
  const std::string event = fmt::format("data: {}\n\n", EventData(StatusJson(snapshot, setting_)));
  // Iterates over a copy, because NotifyData() may end a stream and so change watchers_.
  const auto watchers = watchers_;
  for (const std::shared_ptr<Watcher>& watcher : watchers) {
    watcher->next = event;
    watcher->reply->NotifyData();
  }
}

void Dashboard::Close() {
  is_closed_ = true;
  for (const auto& watcher : std::exchange(watchers_, {})) watcher->reply->EndStream();
}

}  // namespace ebb::server
