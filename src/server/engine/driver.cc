// The loop of the engine's thread: takes jobs in and sends their updates.
#include "src/server/engine/driver.h"

#include <set>

#include "src/server/engine/driver_impl.h"

namespace ebb::server {
namespace {

Status NoRoomError() {
  return T0Full(
      "T0 is full: it has no room for more tokens of this request, and there is no other "
      "request or cached prefix to evict");
}

int ContextOf(const Engine& engine, const SessionOptions& session) {
  return session.context > 0 ? session.context : engine.model().shape().trained_context;
}

}  // namespace

void Driver::Impl::Run() {
  Plan plan;
  while (TakeIn(plan)) {
    plan = Next(Look(), Now());
    machine.t0_refused = false;
    CarryOut(plan);
    if (plan.HasStep()) Step(plan);
    Tell();
    StorePrefixes(&plan);
  }
  if (options.prefix_store == nullptr) prefixes = PrefixCache(0);
  while (!actives.empty()) {
    Finish(actives.front().get(), FinishReason::kCancelled, Cancelled("the server is stopping"));
  }
  Tell();
  StoreAllPrefixes();
  prefixes = PrefixCache(0);
}

bool Driver::Impl::TakeIn(const Plan& last) {
  std::vector<Job> jobs;
  std::vector<JobId> gone, ending;
  std::vector<std::function<void()>> asked;
  std::vector<uint64_t> unwanted;
  {
    std::unique_lock lock(mutex);
    const auto has_come = [&] {
      return stopped || !inbox.empty() || !cancelled.empty() || !questions.empty() ||
             !without_thought.empty() || !discarded.empty();
    };
    if (last.IsIdle() && last.wake_at.has_value()) {
      const std::chrono::duration<double> at(*last.wake_at);
      wake.wait_until(lock, origin + std::chrono::duration_cast<Clock::duration>(at), has_come);
    } else if (last.IsIdle()) {
      wake.wait(lock, has_come);
    }
    jobs = std::exchange(inbox, {});
    gone = std::exchange(cancelled, {});
    asked = std::exchange(questions, {});
    ending = std::exchange(without_thought, {});
    unwanted = std::exchange(discarded, {});
    num_waiting = NumWaiting() + jobs.size();
    if (stopped) {
      for (Job& job : jobs) {
        news.push_back({.id = job.id,
                        .end = JobEnd{.finish = FinishReason::kCancelled,
                                      .error = Cancelled("the server is stopping")}});
      }
      return false;
    }
  }
  for (const uint64_t number : unwanted) shelf.Discard(number);
  for (Job& job : jobs) Accept(std::move(job));
  for (const JobId id : gone) {
    if (Active* active = Find(id)) active->state.cancelled = true;
  }
  for (const auto& question : asked) question();
  for (const JobId id : ending) {
    if (Active* active = Find(id)) EndThought(active);
  }
  return true;
}

void Driver::Impl::Ask(std::function<void()> question) {
  {
    const std::lock_guard lock(mutex);
    questions.push_back(std::move(question));
  }
  wake.notify_one();
}

Snapshot Driver::Impl::LookAround() const {
  Snapshot snapshot = {.now = Now(), .figures = counted, .jobs = {}};
  for (const std::unique_ptr<Active>& active : actives) {
    JobView& view = snapshot.jobs.emplace_back(
        ViewOf(active->job, active->state, active->progress, active->session.get(), snapshot.now));
    view.prompt_tokens = active->prompt_tokens;
  }
  return snapshot;
}

void Driver::Impl::EndThought(Active* active) {
  active->ends_thought = true;
  if (active->generation != nullptr) active->generation->EndThought();
}

void Driver::Impl::SetWaitingOwners() {
  std::set<OwnerId> waiting;
  for (const std::unique_ptr<Active>& active : actives) {
    if (active->state.phase != Phase::kDecoding) waiting.insert(active->state.owner);
  }
  shares.SetWaiting(waiting);
}

void Driver::Impl::Accept(Job job) {
  auto active = std::make_unique<Active>();
  active->job = std::move(job);
  JobState& state = active->state;
  state.id = active->update.id = active->job.id;
  state.owner = active->job.owner;
  state.priority = active->job.priority;
  state.arrival = active->waiting_since = Now();
  if (const auto seconds = active->job.deadline_seconds) state.deadline = state.arrival + *seconds;
  state.prompt_left = active->prompt_tokens = active->job.prompt.size();
  state.stepping =
      active->job.session.lossless.has_value() ? Stepping::kAlone : Stepping::kTogether;
  actives.push_back(std::move(active));
  Active* const accepted = actives.back().get();
  Status status = CountNeeds(accepted);
  MachineState whole = machine;
  whole.t0_bytes = t0_cap;
  if (status.ok() && !EverFits(state, whole)) {
    status = T0Full("the tiers cannot hold a request of this length: it needs " +
                    std::to_string(state.least_bytes) + " bytes of T0 and " +
                    std::to_string(state.t1_bytes) + " of T1");
  }
  if (!status.ok()) return Finish(accepted, FinishReason::kCap, status);
  accepted->update.accepted = true;
  accepted->has_news = true;
  LookUp(accepted);
}

Status Driver::Impl::CountNeeds(Active* active) const {
  const Job& job = active->job;
  JobState& state = active->state;
  SessionOptions lowest = job.session;
  std::optional<TierSpec>& tiers = lowest.policy.tiers;
  state.can_park =
      tiers.has_value() && tiers->t1 != T1Place::kNone && !job.session.lossless.has_value();
  state.is_elastic = state.can_park && tiers->t0_cap_bytes == 0;
  if (tiers.has_value()) state.share = state.most_share = tiers->t0_share;
  const size_t kept = job.work.has_value() ? job.work->num_kept : 0;
  const auto prompt = static_cast<int64_t>(kept + job.prompt.size());
  const int context = ContextOf(*engine, job.session);
  const int64_t asked = job.generate.max_tokens < 0 ? context : job.generate.max_tokens;
  const auto most = static_cast<int>(std::min<int64_t>(context, prompt + asked));
  if (state.is_elastic) tiers->t0_share = 0;
  EBB_ASSIGN_OR_RETURN(const TierNeeds needs,
                       engine->CountNeeds(lowest, static_cast<int>(prompt), most));
  state.t1_bytes = needs.t1_bytes;
  state.t2_bytes = needs.t2_bytes;
  state.least_bytes = state.start_bytes = needs.t0_bytes;
  if (!state.can_park) return OkStatus();
  if (state.is_elastic) {
    state.least_bytes = needs.t0_floor_bytes;
    const int begun = static_cast<int>(std::min<int64_t>(most, prompt + 1));
    EBB_ASSIGN_OR_RETURN(const TierNeeds first,
                         engine->CountNeeds(lowest, static_cast<int>(prompt), begun));
    state.start_bytes = std::min(state.least_bytes, first.t0_bytes + page_bytes);
  }
  // Parked, it has all of its rows there.
  state.t1_bytes += state.least_bytes;
  return OkStatus();
}

State Driver::Impl::Look() {
  SetWaitingOwners();
  State state = {.machine = machine, .jobs = {}};
  state.jobs.reserve(actives.size());
  const double now = Now();
  for (const std::unique_ptr<Active>& active : actives) {
    JobState& job = state.jobs.emplace_back(active->state);
    job.served = shares.served(job.owner);
    const bool waits = job.phase == Phase::kWaiting || job.phase == Phase::kParked;
    if (waits) job.waited += now - active->waiting_since;
    if (active->HasBegunPrompt()) job.prompt_left = active->session->prompt_left();
    const int most = active->job.generate.max_tokens;
    const auto expected = static_cast<size_t>(mean_generated);
    job.tokens_left = most < 0 ? expected : std::min(expected, static_cast<size_t>(most));
    if (!IsCapped() || active->session == nullptr) continue;
    job.held_bytes = active->session->page_bytes(Tier::kT0) +
                     active->session->page_bytes(Tier::kT1) + 2 * page_bytes;
    // A job that was never parked grows to its least part. One that was parked must not take room
    // from others again.
    const bool grows = job.is_elastic && job.num_parks == 0;
    if (grows)
      job.least_bytes = std::min(job.least_bytes, std::max(job.start_bytes, job.held_bytes));
  }
  return state;
}

void Driver::Impl::CarryOut(const Plan& plan) {
  for (const Plan::End& end : plan.ends) End(end);
  const auto each = [&](const std::vector<JobId>& ids, void (Impl::*act)(Active*)) {
    for (const JobId id : ids) {
      if (Active* active = Find(id)) (this->*act)(active);
    }
  };
  const auto share = [&](const std::vector<Plan::Share>& shares) {
    for (const Plan::Share& wanted : shares) {
      if (Active* active = Find(wanted.id)) SetShare(active, wanted.share);
    }
  };
  each(plan.parks, &Impl::Park);
  share(plan.shares);
  each(plan.resumes, &Impl::Resume);
  each(plan.starts, &Impl::Start);
  share(plan.grown_shares);
}

void Driver::Impl::End(const Plan::End& end) {
  Active* const active = Find(end.id);
  if (active == nullptr) return;
  switch (end.reason) {
    case EndReason::kCancelled:
      return Finish(active, FinishReason::kCancelled, Cancelled("the request was cancelled"));
    case EndReason::kDeadline:
      return Finish(active, FinishReason::kCancelled,
                    DeadlineExceeded("the deadline of the request is exceeded"));
    case EndReason::kNoRoom:
      return Finish(active, FinishReason::kCap, NoRoomError());
  }
}

void Driver::Impl::Tell() {
  std::vector<JobUpdate> updates = std::exchange(news, {});
  counted.waiting = counted.reading = counted.decoding = counted.parked = 0;
  for (const std::unique_ptr<Active>& active : actives) {
    switch (active->state.phase) {
      case Phase::kWaiting:
        ++counted.waiting;
        break;
      case Phase::kReading:
        ++counted.reading;
        break;
      case Phase::kDecoding:
        ++counted.decoding;
        break;
      case Phase::kParked:
        ++counted.parked;
        break;
    }
    if (!active->has_news) continue;
    active->has_news = false;
    updates.push_back(std::exchange(active->update, {.id = active->job.id}));
  }
  CountRows();
  counted.seconds_per_step = machine.seconds_per_step;
  counted.seconds_per_prompt_token = machine.seconds_per_prompt_token;
  counted.predicted_wait = PredictWait(Look());
  {
    const std::lock_guard lock(mutex);
    shown = counted;
    num_waiting = counted.waiting;
  }
  if (!updates.empty()) tell(std::move(updates));
}

void Driver::Impl::CountRows() {
  constexpr double kInterval = 0.25;  // it takes a pass over the tables of all sessions
  const double now = Now();
  if (!actives.empty() && now < rows_counted + kInterval) return;
  rows_counted = now;
  counted.rows = {};
  for (const std::unique_ptr<Active>& active : actives) {
    if (active->session == nullptr) continue;
    const CacheAccounting rows = active->session->accounting();
    for (int t = 0; t < kNumTiers; ++t) counted.rows[t] += rows.tiers[t].rows;
  }
  counted.prefixes = prefixes.size();
  counted.prefix_bytes = prefixes.bytes();
  for (int t = 0; t < kNumTiers; ++t) {
    counted.arenas[t] = engine->arena_accounting(static_cast<Tier>(t));
    if (!IsCap(counted.arenas[t].cap_bytes)) counted.arenas[t].cap_bytes = 0;
  }
}

Driver::Driver(std::unique_ptr<Engine> engine, const DriverOptions& options, Tell tell)
    : impl_(std::make_unique<Impl>(std::move(engine), options, std::move(tell))) {}
Driver::~Driver() = default;
void Driver::Stop() { impl_->Stop(); }

Status Driver::Submit(std::vector<Job> jobs) {
  {
    const std::lock_guard lock(impl_->mutex);
    if (impl_->stopped) return Cancelled("the server is stopping");
    if (jobs.size() > impl_->options.most_waiting) {
      return InvalidArgument(
          "n", "expected at most " + std::to_string(impl_->options.most_waiting) +
                   " answers to all prompts together, found " + std::to_string(jobs.size()));
    }
    const size_t there = impl_->num_waiting + impl_->inbox.size();
    if (there + jobs.size() > impl_->options.most_waiting) {
      return QueueFull("the queue is full: " + std::to_string(there) + " requests are waiting");
    }
    for (Job& job : jobs) impl_->inbox.push_back(std::move(job));
  }
  impl_->wake.notify_one();
  return OkStatus();
}

void Driver::Discard(uint64_t resting) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->discarded.push_back(resting);
  }
  impl_->wake.notify_one();
}

void Driver::Cancel(JobId id) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->cancelled.push_back(id);
  }
  impl_->wake.notify_one();
}

void Driver::Look(std::function<void(Snapshot)> tell) {
  impl_->Ask([impl = impl_.get(), tell = std::move(tell)] { tell(impl->LookAround()); });
}

void Driver::Trace(JobId id, std::function<void(std::optional<TokenFates>)> tell) {
  impl_->Ask([impl = impl_.get(), id, tell = std::move(tell)] {
    const Active* const active = impl->Find(id);
    if (active == nullptr || active->session == nullptr) return tell(std::nullopt);
    tell(FatesOf(id, active->progress, active->prompt_tokens, *active->session));
  });
}

void Driver::EndThought(JobId id) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->without_thought.push_back(id);
  }
  impl_->wake.notify_one();
}

Figures Driver::figures() const {
  const std::lock_guard lock(impl_->mutex);
  return impl_->shown;
}

Status ShareTiers(SessionOptions* session) {
  std::optional<TierSpec>& tiers = session->policy.tiers;
  if (!tiers.has_value()) return OkStatus();
  if (tiers->evict_beyond_caps) {
    return InvalidArgument("tiers.evict_beyond_caps",
                           "which rows are evicted would depend on other requests; give a "
                           "share instead");
  }
  // The cap is of all sessions: each may have all of T0 as long as no other session needs it.
  if (tiers->t0_cap_bytes > 0) tiers->t0_share = 1;
  tiers->t0_cap_bytes = tiers->t1_cap_bytes = 0;
  return OkStatus();
}

}  // namespace ebb::server
