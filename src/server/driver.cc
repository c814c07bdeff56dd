// Invariants:
// 1. Only the thread touches the engine, sessions, samplers and `actives`; what lies under `mutex`
//    is what it exchanges with others.
// 2. A job that decodes has a token that is not appended yet. It is told about, so that it is
//    appended before anything else happens to the job, however often a step is refused.
// 3. A job ends once: it is told, and gone from `actives`, in the same round.
// 4. T0 counts as full only when no prefix is left that could go.
#include "src/server/driver.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "ebb/conversation.h"
#include "ebb/prefix.h"
#include "src/server/prefix_cache.h"
#include "src/server/schedule.h"
#include "src/server/session_shelf.h"

namespace ebb::server {
namespace {

using Clock = std::chrono::steady_clock;

// A job beside its session.
struct Active {
  Job job;
  JobState state;
  std::unique_ptr<Session> session;        // null while it waits
  std::unique_ptr<Generation> generation;  // null until the prompt is read
  std::optional<Token> pending;            // chosen and shown, not appended
  int cached_tokens = 0;                   // of the prompt
  JobUpdate update;                        // not told yet
  bool has_news = false;
  [[nodiscard]] bool HasBegunPrompt() const { return session != nullptr && job.prompt.empty(); }
  // Seconds since the driver began; 0: not yet.
  double waiting_since = 0;  // while it waits or is parked
  double begun = 0;
  double first_token = 0;
  double last_token = 0;
  size_t prompt_tokens = 0;
  JobProgress progress;
  bool ends_thought = false;  // though its answer has not begun
  // With a session that stays: its answer, since when it was not saved, and what is wrong with it.
  AnswerSoFar answer;
  bool in_thought = false;
  int thought_tokens = 0;   // that this job generated
  size_t saved_tokens = 0;  // of the answer
  SessionTrouble trouble = SessionTrouble::kNone;
};

// Mean of late.
void Blend(double value, double* mean) { *mean = *mean == 0 ? value : 0.9 * *mean + 0.1 * value; }

Status NoRoomError() {
  return ResourceExhausted("T0 holds no more of this request, and nothing else is there to go");
}

// An arena without a cap has one beyond any memory.
bool IsCap(size_t cap_bytes) { return cap_bytes > 0 && cap_bytes < size_t{1} << 62; }

int ContextOf(const Engine& engine, const SessionOptions& session) {
  return session.context > 0 ? session.context : engine.model().shape().trained_context;
}

}  // namespace

struct Driver::Impl {
  Impl(std::unique_ptr<Engine> engine_in, const DriverOptions& options_in, Tell tell_in)
      : engine(std::move(engine_in)),
        options(options_in),
        tell(std::move(tell_in)),
        prefixes(options_in.prefix_cache_bytes) {
    machine.most_running = options.most_running;
    const size_t cap = engine->arena_accounting(Tier::kT0).cap_bytes;
    if (IsCap(cap)) t0_cap = cap;
    machine.t0_bytes = t0_cap;
    const auto& tiers = engine->options().tiers;
    if (tiers.has_value() && tiers->t1_cap_bytes > 0) machine.t1_bytes = tiers->t1_cap_bytes;
    // A page of each stream holds as many tokens as it has rows.
    if (const auto needs = engine->CountNeeds({}, 1, 1); needs.ok()) page_bytes = needs->t0_bytes;
    Tell();  // caps are shown before the first job
    thread = std::thread([this] { Run(); });
  }
  ~Impl() { Stop(); }

  void Stop() {
    {
      const std::lock_guard lock(mutex);
      stopped = true;
    }
    wake.notify_one();
    if (thread.joinable()) thread.join();
  }

  void Run();
  // Takes what came; after a plan that did nothing, waits for it. False: it is over.
  bool TakeIn(const Plan& last);
  void Accept(Job job);
  [[nodiscard]] Status CountNeeds(Active* active) const;
  [[nodiscard]] State Look();
  void CarryOut(const Plan& plan);
  void End(const Plan::End& end);
  void Park(Active* active);
  void Resume(Active* active);
  void Start(Active* active);
  [[nodiscard]] Result<std::unique_ptr<Session>> Open(Active* active);
  void NotBegun(Active* active, const Status& status);
  // Before the first step that reads. False: the job is over.
  bool BeginPrompt(Active* active);
  [[nodiscard]] PrefixSource FindPrefix(const Active& active, std::span<const Token> prompt);
  // False: the session is good only for being destroyed.
  [[nodiscard]] bool TakePrefix(Active* active, const PrefixSource& source,
                                const std::vector<Token>& prompt);
  // False: the job is over.
  [[nodiscard]] bool BringToT0(Active* active);
  // Whose prompt was read just now, by a policy that leaves no prefix: others of the same prompt
  // that have not begun it stand where it stands.
  void ForkToTwins(Active* active);
  // False: it has to read.
  [[nodiscard]] bool ForkTo(Active* twin, Session* from);
  // Keeps what can be kept of a job that is over.
  void KeepPrefix(Active* active, const JobEnd& end);
  // Room, for whoever needs it. False: they have none.
  bool TakeFromPrefixes();
  void SetShare(Active* active, double share);
  void Step(const Plan& plan);
  // In one batch, or each by itself where nobody knows whose error it was.
  void StepTogether(std::span<Active* const> who, bool reads_alone);
  void StepAlone(Active* active);
  void Appended(Active* active, const Status& status, double seconds);
  void Read(Active* active, const Status& status);
  // What stopped a step before it changed anything.
  void Refused(Active* active, const Status& status);
  void NoteRefusal();
  // The next token of a job, or its end.
  void Choose(Active* active);
  void Begin(Active* active);
  // The session of a job that has SessionWork, at a checkpoint and at the end.
  void Note(Active* active, Token token);
  void Checkpoint(Active* active);
  void Rest(Active* active, const GenerateResult& result, JobEnd* end);
  void Finish(Active* active, FinishReason reason, const Status& error);
  void Tell();
  void CountRows();
  void Ask(std::function<void()> question);
  [[nodiscard]] Snapshot LookAround() const;
  void EndThought(Active* active);
  void SetWaitingOwners();

  [[nodiscard]] double Now() const {
    return std::chrono::duration<double>(Clock::now() - origin).count();
  }
  [[nodiscard]] bool IsCapped() const { return t0_cap != kNoCap; }
  [[nodiscard]] Active* Find(JobId id) {
    const auto found = std::ranges::find_if(
        actives, [&](const std::unique_ptr<Active>& active) { return active->job.id == id; });
    return found == actives.end() ? nullptr : found->get();
  }
  [[nodiscard]] size_t NumWaiting() const {
    return static_cast<size_t>(std::ranges::count_if(
        actives, [](const auto& active) { return active->state.phase == Phase::kWaiting; }));
  }

  const std::unique_ptr<Engine> engine;
  const DriverOptions options;
  const Driver::Tell tell;
  const Clock::time_point origin = Clock::now();

  // What follows belongs to the thread.
  std::vector<std::unique_ptr<Active>> actives;  // in order of arrival
  std::vector<JobUpdate> news;                   // of jobs that are over
  PrefixCache prefixes;
  MachineState machine;
  FairShares shares;
  uint64_t t0_cap = kNoCap;
  uint64_t page_bytes = 0;
  double mean_generated = 0;  // tokens of an answer
  double rows_counted = 0;    // when
  Figures counted;
  SessionShelf shelf;

  mutable std::mutex mutex;
  std::condition_variable wake;
  std::vector<Job> inbox;
  std::vector<JobId> cancelled;
  std::vector<std::function<void()>> questions;  // run between steps
  std::vector<JobId> without_thought;            // whose thoughts are to end
  std::vector<uint64_t> discarded;               // sessions
  size_t num_waiting = 0;                        // those of the inbox left out
  Figures shown;
  bool stopped = false;

  std::thread thread;  // last: it begins when all else is there
};

void Driver::Impl::Run() {
  Plan plan;
  while (TakeIn(plan)) {
    plan = Next(Look(), Now());
    machine.t0_refused = false;
    CarryOut(plan);
    if (plan.HasStep()) Step(plan);
    Tell();
  }
  prefixes = PrefixCache(0);
  while (!actives.empty()) {
    Finish(actives.front().get(), FinishReason::kCancelled, Cancelled("the server is stopping"));
  }
  Tell();
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
    status = ResourceExhausted("the caps of the tiers hold no request of this length: it takes " +
                               std::to_string(state.least_bytes) + " bytes of T0 and " +
                               std::to_string(state.t1_bytes) + " of T1");
  }
  if (!status.ok()) return Finish(accepted, FinishReason::kCap, status);
  accepted->update.accepted = true;
  accepted->has_news = true;
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
    // One that has never rested grows into what it takes at the least; one that has must not be in
    // the way again.
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
      return Finish(active, FinishReason::kCancelled, Cancelled("whoever asked has gone"));
    case EndReason::kDeadline:
      return Finish(active, FinishReason::kCancelled, Cancelled("the request's time is over"));
    case EndReason::kNoRoom:
      return Finish(active, FinishReason::kCap, NoRoomError());
  }
}

void Driver::Impl::Park(Active* active) {
  Status status = active->session->SetT0Floor(0);
  if (status.ok()) status = active->session->Park();
  // Prefixes may take what it needs of T1.
  while (status.code() == StatusCode::kResourceExhausted && TakeFromPrefixes()) {
    status = active->session->Park();
  }
  if (!status.ok()) return Finish(active, FinishReason::kError, status);
  active->state.was_reading = active->state.phase == Phase::kReading;
  active->state.phase = Phase::kParked;
  active->waiting_since = Now();
  ++active->state.num_parks;
  ++counted.parks;
}

void Driver::Impl::Resume(Active* active) {
  Session& session = *active->session;
  Status status = session.SetT0Floor(active->state.least_bytes);
  // Rows that cannot go on without T0 come back now rather than with a decision.
  if (status.ok() && active->state.is_elastic) status = session.SetT0Share(active->state.share);
  if (!status.ok()) {
    // Parked, it keeps nothing from others.
    const Status released = session.SetT0Floor(0);
    return NotBegun(active, released.ok() ? status : released);
  }
  active->state.phase = active->state.was_reading ? Phase::kReading : Phase::kDecoding;
  active->state.waited += Now() - active->waiting_since;
  ++counted.resumes;
}

Result<std::unique_ptr<Session>> Driver::Impl::Open(Active* active) {
  SessionOptions session = active->job.session;
  if (IsCapped()) session.t0_floor_bytes = active->state.start_bytes;
  if (options.keeps_fates) session.ledger = SessionOptions::Record::kYes;
  if (active->job.work.has_value()) {
    return shelf.Open(engine.get(), session, *active->job.work, &active->trouble);
  }
  return engine->OpenSession(session);
}

void Driver::Impl::Start(Active* active) {
  auto opened = Open(active);
  if (!opened.ok()) return NotBegun(active, opened.status());
  active->session = *std::move(opened);
  machine.start_refused = false;
  active->state.phase = Phase::kReading;
  active->begun = Now();
  active->state.waited = active->begun - active->waiting_since;
  counted.queue.Add(active->begun - active->state.arrival);
  if (!active->job.work.has_value()) return;  // the step that reads its prompt begins it
  if (active->job.prompt.empty()) return Begin(active);
  const Status begun = active->session->BeginPrompt(std::exchange(active->job.prompt, {}));
  if (!begun.ok()) Finish(active, FinishReason::kError, begun);
}

// While others run it waits for them to end or to give way.
void Driver::Impl::NotBegun(Active* active, const Status& status) {
  const bool is_full = status.code() == StatusCode::kResourceExhausted;
  const std::optional<std::string>& key = active->job.prefix_key;
  // The one that it would take rows from goes last.
  if (is_full && key.has_value()) (void)prefixes.Find(*key, active->job.prompt);
  if (is_full && TakeFromPrefixes()) return;
  const bool others_run = std::ranges::any_of(actives, [](const auto& other) {
    return other->state.phase == Phase::kReading || other->state.phase == Phase::kDecoding;
  });
  if (!is_full || !others_run) return Finish(active, FinishReason::kCap, status);
  machine.start_refused = true;
  ++counted.t0_refusals;
}

bool Driver::Impl::BeginPrompt(Active* active) {
  if (active->HasBegunPrompt()) return true;
  std::vector<Token> prompt = std::exchange(active->job.prompt, {});
  if (const PrefixSource source = FindPrefix(*active, prompt); source.num_tokens > 0) {
    if (TakePrefix(active, source, prompt)) return BringToT0(active);
    // What is left of the session is good for nothing.
    active->session.reset();
    auto opened = Open(active);
    if (!opened.ok()) {
      Finish(active, FinishReason::kCap, opened.status());
      return false;
    }
    active->session = *std::move(opened);
  }
  const Status begun = active->session->BeginPrompt(std::move(prompt));
  if (!begun.ok()) Finish(active, FinishReason::kError, begun);
  return begun.ok();
}

PrefixSource Driver::Impl::FindPrefix(const Active& active, std::span<const Token> prompt) {
  const std::optional<std::string>& key = active.job.prefix_key;
  if (!prefixes.is_on() || !key.has_value()) return {};
  PrefixSource best = prefixes.Find(*key, prompt);
  for (const std::unique_ptr<Active>& other : actives) {
    const bool may_share = other.get() != &active && other->HasBegunPrompt();
    if (may_share && other->job.prefix_key == key) {
      best = BetterSource(best, other->session.get(), prompt);
    }
  }
  counted.prefix_queries += prompt.size();
  return best;
}

bool Driver::Impl::TakePrefix(Active* active, const PrefixSource& source,
                              const std::vector<Token>& prompt) {
  const auto num_taken = BeginPromptFrom(source.session, prompt, active->session.get());
  if (!num_taken.ok()) return false;
  active->cached_tokens = static_cast<int>(*num_taken);
  counted.prefix_hits += *num_taken;
  return true;
}

// Rows that were taken lie where their source had them.
bool Driver::Impl::BringToT0(Active* active) {
  const bool lies_in_t1 = active->session->page_bytes(Tier::kT1) > 0;
  if (!lies_in_t1 || !active->state.is_elastic) return true;
  const JobId id = active->job.id;
  SetShare(active, active->state.share);
  return Find(id) != nullptr;
}

// Pages that forks share may have free slots that neither can use, which floors do not know of:
// under a cap each reads for itself.
void Driver::Impl::ForkToTwins(Active* active) {
  const std::span<const Token> prompt = active->session->tokens();
  const bool has_key = active->job.prefix_key.has_value();
  if (!prefixes.is_on() || !has_key || IsCapped() || ExactPrefix(*active->session, prompt) > 0)
    return;
  std::vector<Active*> twins;
  for (const std::unique_ptr<Active>& other : actives) {
    const bool waits_to_read = other->state.phase == Phase::kReading && !other->HasBegunPrompt();
    if (!waits_to_read || other->job.prefix_key != active->job.prefix_key) continue;
    if (std::ranges::equal(other->job.prompt, prompt)) twins.push_back(other.get());
  }
  for (Active* twin : twins) {
    if (ForkTo(twin, active->session.get())) Begin(twin);
  }
}

bool Driver::Impl::ForkTo(Active* twin, Session* from) {
  auto fork = from->Fork();
  if (!fork.ok()) return false;
  twin->session = *std::move(fork);
  twin->cached_tokens = static_cast<int>(std::exchange(twin->job.prompt, {}).size());
  counted.prefix_queries += twin->cached_tokens;
  counted.prefix_hits += twin->cached_tokens;
  return true;
}

void Driver::Impl::KeepPrefix(Active* active, const JobEnd& end) {
  const bool failed = end.finish == FinishReason::kError || end.finish == FinishReason::kCap;
  if (failed || active->generation == nullptr || !active->job.prefix_key.has_value()) return;
  active->generation.reset();  // it refers to the session
  prefixes.Keep(*std::move(active->job.prefix_key), static_cast<size_t>(end.prompt_tokens),
                std::move(active->session));
}

bool Driver::Impl::TakeFromPrefixes() {
  const PrefixCache::Given given = prefixes.GiveWay();
  if (given == PrefixCache::Given::kSunk) ++counted.prefixes_sunk;
  if (given == PrefixCache::Given::kDropped) ++counted.prefixes_dropped;
  return given != PrefixCache::Given::kNothing;
}

void Driver::Impl::SetShare(Active* active, double share) {
  const Status status = active->session->SetT0Share(share);
  ++counted.share_changes;
  if (status.ok()) {
    active->state.share = share;
  } else if (status.code() == StatusCode::kResourceExhausted) {
    NoteRefusal();
  } else {
    Finish(active, FinishReason::kError, status);
  }
}

void Driver::Impl::Step(const Plan& plan) {
  std::vector<Active*> together;
  std::vector<Active*> alone;
  for (const JobId id : plan.decodes) {
    Active* const active = Find(id);
    if (active == nullptr || active->state.phase != Phase::kDecoding) continue;
    (active->state.stepping == Stepping::kTogether ? together : alone).push_back(active);
  }
  const bool reads_alone = together.empty() && alone.empty();
  Active* const reader = plan.reader.has_value() ? Find(*plan.reader) : nullptr;
  if (reader != nullptr && reader->state.phase == Phase::kReading && BeginPrompt(reader)) {
    together.push_back(reader);
  }
  if (!together.empty()) StepTogether(together, reads_alone);
  for (Active* active : alone) StepAlone(active);
}

void Driver::Impl::StepTogether(std::span<Active* const> who, bool reads_alone) {
  std::vector<SessionStep> parts(who.size());
  std::vector<Position> before(who.size());
  for (size_t i = 0; i < who.size(); ++i) {
    parts[i].session = who[i]->session.get();
    parts[i].token = who[i]->pending;
    if (!who[i]->pending.has_value() && reads_alone) {
      parts[i].most_prompt_tokens = static_cast<size_t>(engine->options().prefill_chunk);
    }
    before[i] = who[i]->session->next_position();
  }
  const double start = Now();
  const Status status = engine->Step(parts);
  const double seconds = Now() - start;
  const auto took = [&](size_t i) { return who[i]->session->next_position() > before[i]; };
  const bool taken = took(0);
  const bool is_blamed = std::ranges::any_of(parts, [](const auto& p) { return !p.status.ok(); });
  if (!taken && !status.ok() && !is_blamed && who.size() > 1) {
    for (Active* const& active : who) StepTogether({&active, 1}, reads_alone);
    return;
  }
  ++counted.steps;
  size_t num_read = 0;
  for (size_t i = 0; i < who.size(); ++i) {
    const Status& error = parts[i].status.ok() && who.size() == 1 ? status : parts[i].status;
    if (!taken) {
      if (!error.ok()) Refused(who[i], error);
    } else if (parts[i].token.has_value()) {
      Appended(who[i], error, seconds);
    } else {
      num_read = static_cast<size_t>(who[i]->session->next_position() - before[i]);
      counted.prompt_tokens += num_read;
      shares.Charge(who[i]->state.owner, CostOf(static_cast<double>(num_read), before[i]));
      Read(who[i], error);
    }
  }
  if (!taken) return;
  if (num_read > 0) Blend(seconds / num_read, &machine.seconds_per_prompt_token);
  if (num_read == 0) Blend(seconds, &machine.seconds_per_step);
}

void Driver::Impl::StepAlone(Active* active) {
  const Position before = active->session->next_position();
  const double start = Now();
  const Status status = active->session->Decode(*active->pending, active->generation->Guesses(),
                                                active->generation->most_guesses());
  ++counted.steps;
  if (active->session->next_position() == before) return Refused(active, status);
  Blend(Now() - start, &machine.seconds_per_step);
  Appended(active, status, Now() - start);
}

void Driver::Impl::Appended(Active* active, const Status& status, double seconds) {
  active->pending.reset();
  shares.Charge(active->state.owner, CostOf(1, active->session->next_position()));
  // What its policy decided waits for room; the token is there.
  const bool waits = status.code() == StatusCode::kResourceExhausted;
  if (waits) NoteRefusal();
  active->generation->Appended(waits ? OkStatus() : status, seconds);
  if (status.ok() && active->job.work.has_value()) Checkpoint(active);
  Choose(active);
}

void Driver::Impl::Read(Active* active, const Status& status) {
  if (status.code() == StatusCode::kResourceExhausted) {
    NoteRefusal();
  } else if (!status.ok()) {
    return Finish(active, FinishReason::kError, status);
  }
  if (active->session->prompt_left() > 0) return;
  ForkToTwins(active);
  Begin(active);
}

void Driver::Impl::Refused(Active* active, const Status& status) {
  const bool reads = active->state.phase == Phase::kReading;
  const bool is_full = !reads && active->job.session.past_context == PastContext::kRefuse &&
                       active->session->next_position() >= active->session->context();
  if (status.code() == StatusCode::kResourceExhausted && !is_full) return NoteRefusal();
  if (reads) return Finish(active, FinishReason::kError, status);
  active->pending.reset();
  active->generation->Appended(status);
  Choose(active);
}

// Prefixes go first. Then, until a job has ended, no more of T0 is counted on than it held now.
void Driver::Impl::NoteRefusal() {
  if (TakeFromPrefixes()) return;
  machine.t0_refused = true;
  ++counted.t0_refusals;
  if (!IsCapped()) return;
  const ArenaAccounting t0 = engine->arena_accounting(Tier::kT0);
  machine.t0_bytes = std::min<uint64_t>(machine.t0_bytes, t0.used_bytes + t0.pledged_bytes);
}

void Driver::Impl::Begin(Active* active) {
  GenerateOptions options = std::move(active->job.generate);
  active->job.generate = {.max_tokens = options.max_tokens};
  active->progress.in_thought = options.opens_in_thinking;
  options.on_text = [active](std::string_view text, TextPart part) {
    std::vector<JobPiece>& pieces = active->update.pieces;
    if (pieces.empty() || pieces.back().part != part) pieces.push_back({.part = part});
    pieces.back().text += text;
    JobProgress& progress = active->progress;
    progress.in_thought = part == TextPart::kThought;
    if (progress.in_thought) progress.thought_tokens = progress.generated_tokens;
    active->in_thought = part == TextPart::kThought;
    active->has_news = true;
    return true;
  };
  options.on_token = [this, active](Token token) {
    const double now = Now();
    if (active->first_token == 0) {
      active->first_token = now;
      counted.first_token.Add(now - active->state.arrival);
    } else {
      counted.between_tokens.Add(now - active->last_token);
    }
    active->last_token = now;
    active->progress.decode_begin = active->first_token;
    ++active->progress.generated_tokens;
    ++counted.generated_tokens;
    if (active->job.work.has_value()) Note(active, token);
    if (!active->job.logprobs.has_value()) return;
    active->update.logprobs.push_back(
        LogprobsOf(active->session->logits(), token, *active->job.logprobs));
    active->has_news = true;
  };
  active->in_thought = options.opens_in_thinking;
  active->answer = options.so_far;
  if (active->answer.tokens.empty()) active->answer.begin = active->session->next_position();
  active->saved_tokens = active->answer.tokens.size();
  active->generation = std::make_unique<Generation>(active->session.get(),
                                                    active->job.sampler.get(), std::move(options));
  if (active->ends_thought) active->generation->EndThought();
  active->state.phase = Phase::kDecoding;
  Choose(active);
}

void Driver::Impl::Note(Active* active, Token token) {
  active->answer.tokens.push_back(token);
  if (active->in_thought) ++active->thought_tokens;
}

void Driver::Impl::Checkpoint(Active* active) {
  const SessionWork& work = *active->job.work;
  const size_t num_tokens = active->answer.tokens.size();
  if (work.checkpoint_every == 0 ||
      num_tokens < active->saved_tokens + static_cast<size_t>(work.checkpoint_every)) {
    return;
  }
  active->saved_tokens = num_tokens;
  SessionRecord record = work.record;
  record.answer = active->answer;
  record.sampler = SavedState(*active->job.sampler);
  record.thought_tokens += active->thought_tokens;
  // Where it fails, the next one is tried in its turn.
  Result<SavedSession> saved = SessionShelf::Save(active->session.get(), work, std::move(record));
  if (!saved.ok()) return;
  // It takes the place of one that nobody has taken yet.
  if (active->update.saved.has_value()) std::remove(active->update.saved->file.c_str());
  active->update.saved = *std::move(saved);
  active->has_news = true;
}

void Driver::Impl::Rest(Active* active, const GenerateResult& result, JobEnd* end) {
  const SessionWork& work = *active->job.work;
  end->generated_tokens = static_cast<int>(result.answer.tokens.size());
  end->thought_tokens += work.record.thought_tokens;
  if (end->finish == FinishReason::kError || end->finish == FinishReason::kCap) return;
  // An answer without a token is none, whatever cut it off.
  const bool is_over = end->finish != FinishReason::kCancelled;
  if (!is_over && result.answer.tokens.empty()) return;
  SessionRecord record = work.record;
  record.answer = result.answer;
  record.thought_tokens = end->thought_tokens;
  record.is_over = is_over;
  if (is_over) {
    record.sampler.clear();
    record.text = result.text;
    record.thought_bytes = result.thought_bytes;
    record.finish = end->finish;
    record.said = AnswerSaid(*work.prompt, result, work.num_calls);
  } else {
    record.sampler = SavedState(*active->job.sampler);
  }
  end->session = SessionEnd{.num_tokens = active->session->next_position()};
  Result<SavedSession> saved = SessionShelf::Save(active->session.get(), work, std::move(record));
  if (saved.ok()) {
    if (active->update.saved.has_value()) std::remove(active->update.saved->file.c_str());
    active->update.saved = *std::move(saved);
  } else {
    end->session->error = saved.status().message();
  }
}

void Driver::Impl::Choose(Active* active) {
  active->pending = active->generation->Next();
  if (!active->pending.has_value()) Finish(active, FinishReason::kStop, OkStatus());
}

// The generation knows its own reason; `reason` and `error` hold where something else ended it.
void Driver::Impl::Finish(Active* active, FinishReason reason, const Status& error) {
  JobEnd end = {.finish = reason, .error = error, .num_parks = active->state.num_parks};
  const double now = Now();
  const double arrival = active->state.arrival;
  if (active->generation != nullptr) {
    const GenerateResult result = active->generation->End();
    if (error.ok()) {
      end.finish = result.finish_reason;
      end.stop_string = result.stop_string;
      end.error = result.error;
    }
    end.generated_tokens = result.generated_tokens;
    end.thought_tokens = result.thought_tokens;
    end.decode_steps = result.decode_steps;
    Blend(result.generated_tokens, &mean_generated);
    if (active->job.work.has_value()) Rest(active, result, &end);
  }
  if (active->session != nullptr) {
    const auto read = static_cast<int>(active->session->tokens().size());
    end.prompt_tokens = read - end.decode_steps;
    end.cached_tokens = active->cached_tokens;
    end.logits_hash = active->session->logits_hash();
    end.queue_seconds = active->begun - arrival;
    const double first = active->first_token > 0 ? active->first_token : now;
    end.first_token_seconds = first - arrival;
    end.prompt_seconds = first - active->begun;
    end.decode_seconds = now - first;
  }
  KeepPrefix(active, end);
  if (active->job.work.has_value()) {
    const SessionWork& work = *active->job.work;
    end.trouble = active->trouble;
    if (active->generation != nullptr) end.prompt_tokens = active->answer.begin;
    end.cached_tokens = std::min(static_cast<int>(work.num_kept), end.prompt_tokens);
    const bool is_untouched = active->session == nullptr && end.trouble == SessionTrouble::kNone;
    if (is_untouched) end.resting = work.resting;
  }
  ++counted.ended[std::string(FinishReasonName(end.finish))];
  counted.whole.Add(now - arrival);
  const bool rests = end.session.has_value() && end.session->error.empty();
  if (rests && shelf.Keep(active->job.id, active->job.session, *engine, std::move(active->session)))
    end.resting = active->job.id;
  active->update.end = std::move(end);
  news.push_back(std::move(active->update));
  std::erase_if(actives, [&](const auto& other) { return other.get() == active; });
  machine.t0_bytes = t0_cap;
  machine.start_refused = false;
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
    const size_t there = impl_->num_waiting + impl_->inbox.size();
    if (there + jobs.size() > impl_->options.most_waiting) {
      return ResourceExhausted("the queue is full: " + std::to_string(there) + " requests wait");
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
    return InvalidArgument(
        "tiers.evict_beyond_caps: which rows go would follow other requests; give a share");
  }
  // The cap is of all sessions: each may have all of T0 as long as nobody else needs it.
  if (tiers->t0_cap_bytes > 0) tiers->t0_share = 1;
  tiers->t0_cap_bytes = tiers->t1_cap_bytes = 0;
  return OkStatus();
}

}  // namespace ebb::server
