#include "src/server/engine/step_loop.h"

#include <algorithm>
#include <set>
#include <utility>

namespace ebb::server {
namespace {

template <class... Functions>
struct ByMessage : Functions... {
  using Functions::operator()...;
};
template <class... Functions>
ByMessage(Functions...) -> ByMessage<Functions...>;

Status NoRoomError() {
  return T0Full(
      "T0 is full: it has no room for more tokens of this request, and there is no other "
      "request or cached prefix to evict");
}

Status ServerIsStopping() { return Cancelled("the server is stopping"); }

}  // namespace

StepLoop::StepLoop(std::unique_ptr<Engine> engine, const DriverOptions& options, Mailbox* mailbox,
                   Output output)
    : mailbox_(mailbox),
      output_(std::move(output)),
      has_store_(options.prefix_store != nullptr),
      pool_(std::move(engine),
            {.most_running = options.most_running,
             .prefix_cache_bytes = options.prefix_cache_bytes,
             .prefix_store = options.prefix_store.get(),
             .keeps_fates = options.keeps_fates},
            &clock_, &figures_),
      stored_(options.prefix_store, &pool_, mailbox, &clock_, &figures_) {
  Tell();
}

void StepLoop::Run() {
  Plan plan;
  while (TakeMessages(plan)) {
    plan = Next(Look(), clock_.Now());
    pool_.ForgetRefusal();
    CarryOut(plan);
    if (plan.HasStep()) Step(plan);
    Tell();
    stored_.StoreNext(&plan);
  }
  if (!has_store_) pool_.DropPrefixes();
  while (!pool_.jobs().empty()) {
    Finish(pool_.jobs().front().get(), FinishReason::kCancelled, ServerIsStopping());
  }
  Tell();
  stored_.StoreAll();
  pool_.DropPrefixes();
}

bool StepLoop::TakeMessages(const Plan& last) {
  // Passes a time in the past, with which Take() does not sleep, unless the last plan was idle.
  std::optional<EngineClock::Steady::time_point> until = clock_.At(0);
  if (last.IsIdle()) until.reset();
  if (last.IsIdle() && last.wake_at.has_value()) until = clock_.At(*last.wake_at);
  Mailbox::Delivery delivery = mailbox_->Take(until);
  for (Message& message : delivery.messages) {
    if (!delivery.is_stopped) {
      Handle(std::move(message));
    } else if (const Job* const job = std::get_if<Job>(&message)) {
      ended_.push_back(
          {.id = job->id,
           .end = JobEnd{.finish = FinishReason::kCancelled, .error = ServerIsStopping()}});
    }
  }
  return !delivery.is_stopped;
}

void StepLoop::Handle(Message message) {
  std::visit(ByMessage{
                 [&](Job& job) { Accept(std::move(job)); },
                 [&](const CancelJob& cancel) {
                   if (JobRun* const run = pool_.Find(cancel.id)) run->Cancel();
                 },
                 [&](const EndJobThought& end) {
                   if (JobRun* const run = pool_.Find(end.id)) run->EndThought();
                 },
                 [&](const DiscardSession& discard) { pool_.Discard(discard.resting); },
                 [&](const TakeSnapshot& take) { take.tell(MakeSnapshot()); },
                 [&](const TraceJob& trace) {
                   const JobRun* const run = pool_.Find(trace.id);
                   trace.tell(run == nullptr ? std::nullopt : run->Fates());
                 },
                 [&](const ExplainToken& ask) {
                   const Session* const session = pool_.FindSession(ask.id);
                   const ModelShape& shape = pool_.engine().model().shape();
                   ask.tell(session == nullptr
                                ? std::nullopt
                                : std::optional(ReasonsOf(*session, shape, ask.position)));
                 },
                 [&](const PromptLookedUp& answer) { stored_.Take(answer); },
             },
             message);
}

Snapshot StepLoop::MakeSnapshot() const {
  Snapshot snapshot = {.now = clock_.Now(), .figures = figures_, .jobs = {}};
  for (const auto& run : pool_.jobs()) snapshot.jobs.push_back(run->View());
  for (const Wait& wait : FindWaits(Complete(pool_.Look()), snapshot.now)) {
    const auto job = std::ranges::find(snapshot.jobs, wait.id, &JobView::id);
    if (job != snapshot.jobs.end()) job->wait = wait;
  }
  return snapshot;
}

void StepLoop::Accept(Job job) {
  JobRun* const run = pool_.Add(std::move(job));
  if (const Status status = pool_.Admit(run); !status.ok()) {
    return Finish(run, FinishReason::kCap, status);
  }
  run->Accept();
  stored_.LookUp(run);
}

State StepLoop::Look() {
  State state = pool_.Look();
  std::set<OwnerId> waiting;
  for (const JobState& job : state.jobs) {
    if (job.phase != Phase::kDecoding) waiting.insert(job.owner);
  }
  shares_.SetWaiting(waiting);
  return Complete(std::move(state));
}

State StepLoop::Complete(State state) const {
  for (JobState& job : state.jobs) job.served = shares_.served(job.owner);
  state.machine.seconds_per_prompt_token = figures_.seconds_per_prompt_token;
  state.machine.seconds_per_step = figures_.seconds_per_step;
  return state;
}

void StepLoop::CarryOut(const Plan& plan) {
  for (const Plan::End& end : plan.ends) End(end);
  const auto each = [&](const std::vector<JobId>& ids,
                        SessionPool::Failure (SessionPool::*act)(JobRun*)) {
    for (const JobId id : ids) {
      if (JobRun* const run = pool_.Find(id)) HasEnded(run, (pool_.*act)(run));
    }
  };
  const auto share = [&](const std::vector<Plan::Share>& shares) {
    for (const Plan::Share& wanted : shares) {
      JobRun* const run = pool_.Find(wanted.id);
      if (run != nullptr) HasEnded(run, pool_.SetShare(run, wanted.share));
    }
  };
  each(plan.parks, &SessionPool::Park);
  share(plan.shares);
  each(plan.resumes, &SessionPool::Resume);
  for (const JobId id : plan.starts) {
    JobRun* const run = pool_.Find(id);
    if (run == nullptr) continue;
    stored_.Begins(id);
    if (HasEnded(run, pool_.Start(run)) || run->session() == nullptr) continue;
    // A job that continues an answer has no prompt, and its answer begins at once.
    if (run->job().work.has_value() && run->session()->prompt_left() == 0) BeginAnswer(run);
  }
  share(plan.grown_shares);
}

void StepLoop::End(const Plan::End& end) {
  JobRun* const run = pool_.Find(end.id);
  if (run == nullptr) return;
  switch (end.reason) {
    case EndReason::kCancelled:
      return Finish(run, FinishReason::kCancelled, Cancelled("the request was cancelled"));
    case EndReason::kDeadline:
      return Finish(run, FinishReason::kCancelled,
                    DeadlineExceeded("the deadline of the request is exceeded"));
    case EndReason::kNoRoom:
      return Finish(run, FinishReason::kCap, NoRoomError());
  }
}

void StepLoop::Step(const Plan& plan) {
  std::vector<JobRun*> together;
  std::vector<JobRun*> alone;
  for (const JobId id : plan.decodes) {
    JobRun* const run = pool_.Find(id);
    if (run == nullptr || run->state().phase != Phase::kDecoding) continue;
    (run->state().stepping == Stepping::kTogether ? together : alone).push_back(run);
  }
  const bool reads_alone = together.empty() && alone.empty();
  JobRun* const reader = plan.reader.has_value() ? pool_.Find(*plan.reader) : nullptr;
  if (reader != nullptr && reader->state().phase == Phase::kReading) {
    const bool is_new = !reader->HasBegunPrompt();
    if (!HasEnded(reader, pool_.BeginPrompt(reader))) {
      if (is_new) reader->ReportProgress();
      together.push_back(reader);
    }
  }
  // A request that decodes without others may take several tokens in a step.
  if (alone.empty() && together.size() == 1 && together.front()->pending().has_value()) {
    alone.swap(together);
  }
  if (!together.empty()) StepTogether(together, reads_alone);
  for (JobRun* const run : alone) StepAlone(run);
}

void StepLoop::StepTogether(std::span<JobRun* const> who, bool reads_alone) {
  std::vector<SessionStep> parts(who.size());
  for (size_t i = 0; i < who.size(); ++i) {
    parts[i].session = who[i]->session();
    parts[i].token = who[i]->pending();
    if (parts[i].token.has_value()) {
      parts[i].most_guesses = who[i]->most_guesses();
      parts[i].guess = who[i]->MakeGuess();
    }
    if (!parts[i].token.has_value() && reads_alone) {
      parts[i].most_prompt_tokens = static_cast<size_t>(pool_.engine().options().prefill_chunk);
    }
  }
  const double start = clock_.Now();
  const StepOutcome outcome = pool_.engine().Step(parts);
  const double seconds = clock_.Now() - start;
  const bool is_blamed = std::ranges::any_of(parts, [](const auto& p) { return !p.status.ok(); });
  if (!outcome.taken && !outcome.ok() && !is_blamed && who.size() > 1) {
    for (JobRun* const& run : who) StepTogether({&run, 1}, reads_alone);
    return;
  }
  ++figures_.steps;
  figures_.stepped_jobs += who.size();
  size_t num_read = 0;
  std::vector<JobId> ids;  // jobs that end are removed
  for (const JobRun* const run : who) ids.push_back(run->id());
  for (size_t i = 0; i < who.size(); ++i) {
    const Status& error =
        parts[i].status.ok() && who.size() == 1 ? outcome.status : parts[i].status;
    if (!outcome.taken) {
      if (!error.ok()) Refused(who[i], error);
    } else if (parts[i].token.has_value() && parts[i].num_taken == 0) {
      // There was no room for a token that was computed ahead.
      Refused(who[i], error);
    } else if (parts[i].token.has_value()) {
      Appended(who[i], error, seconds, parts[i].num_guesses);
    } else {
      num_read = parts[i].num_taken;
      figures_.prompt_tokens += num_read;
      const Position first = who[i]->session()->next_position() - static_cast<Position>(num_read);
      shares_.Charge(who[i]->state().owner, CostOf(static_cast<double>(num_read), first));
      Read(who[i], error);
    }
  }
  if (!outcome.taken) return;
  for (const JobId id : ids) TakeComputed(id);
  if (num_read > 0) Blend(seconds / num_read, &figures_.seconds_per_prompt_token);
  if (num_read == 0) Blend(seconds, &figures_.seconds_per_step);
}

// A step of several jobs would otherwise yield one of these tokens in a round.
void StepLoop::TakeComputed(JobId id) {
  while (JobRun* const run = pool_.Find(id)) {
    const bool is_computed =
        run->pending().has_value() && run->session()->HasComputed(*run->pending());
    if (!is_computed) return;
    const StepOutcome outcome = run->DecodeAlone();
    if (!outcome.taken) return Refused(run, outcome.status);
    NoteAppended(run, outcome.status, 0);
  }
}

void StepLoop::StepAlone(JobRun* run) {
  const double start = clock_.Now();
  const JobId id = run->id();
  const auto drafted = [run] { return run->session()->speculation_report().drafted; };
  const int64_t drafted_before = drafted();
  const StepOutcome outcome = run->DecodeAlone();
  ++figures_.steps;
  ++figures_.stepped_jobs;
  if (!outcome.taken) return Refused(run, outcome.status);
  Blend(clock_.Now() - start, &figures_.seconds_per_step);
  Appended(run, outcome.status, clock_.Now() - start,
           static_cast<size_t>(drafted() - drafted_before));
  // The owner was charged for the guesses that were right already.
  TakeComputed(id);
}

void StepLoop::Appended(JobRun* run, const Status& status, double seconds, size_t num_guesses) {
  shares_.Charge(run->state().owner,
                 CostOf(static_cast<double>(1 + num_guesses), run->session()->next_position()));
  NoteAppended(run, status, seconds);
}

void StepLoop::NoteAppended(JobRun* run, const Status& status, double seconds) {
  if (IsLimit(status.code())) pool_.NoteRefusal();
  run->Appended({.taken = true, .status = status}, seconds);
  Choose(run);
}

void StepLoop::Read(JobRun* run, const Status& status) {
  if (IsLimit(status.code())) {
    pool_.NoteRefusal();
  } else if (!status.ok()) {
    return Finish(run, FinishReason::kError, status);
  }
  run->ReportProgress();
  if (run->session()->prompt_left() > 0) return;
  for (JobRun* const forked : pool_.ForkToIdenticalPrompts(*run)) {
    forked->ReportProgress();
    BeginAnswer(forked);
  }
  BeginAnswer(run);
}

void StepLoop::Refused(JobRun* run, const Status& status) {
  const bool is_context_full = status.code() == StatusCode::kContextFull;
  if (IsLimit(status.code()) && !is_context_full) return pool_.NoteRefusal();
  if (run->state().phase == Phase::kReading) {
    return Finish(run, is_context_full ? FinishReason::kCap : FinishReason::kError, status);
  }
  run->Appended({.taken = false, .status = status});
  Choose(run);
}

void StepLoop::BeginAnswer(JobRun* run) {
  run->BeginAnswer();
  Choose(run);
}

void StepLoop::Choose(JobRun* run) {
  if (!run->Choose()) Finish(run, FinishReason::kStop, OkStatus());
}

bool StepLoop::HasEnded(JobRun* run, const SessionPool::Failure& failure) {
  if (failure.has_value()) Finish(run, failure->reason, failure->error);
  return failure.has_value();
}

void StepLoop::Finish(JobRun* run, FinishReason reason, const Status& error) {
  JobEnd end = run->End(reason, error);
  JobUpdate last = run->TakeUpdate();
  stored_.Ends(run->id());
  pool_.Remove(run, &end);
  last.end = std::move(end);
  ended_.push_back(std::move(last));
}

void StepLoop::Tell() {
  std::vector<JobUpdate> updates = std::exchange(ended_, {});
  figures_.waiting = figures_.reading = figures_.decoding = figures_.parked = 0;
  for (const std::unique_ptr<JobRun>& run : pool_.jobs()) {
    switch (run->state().phase) {
      case Phase::kWaiting:
        ++figures_.waiting;
        break;
      case Phase::kReading:
        ++figures_.reading;
        break;
      case Phase::kDecoding:
        ++figures_.decoding;
        break;
      case Phase::kParked:
        ++figures_.parked;
        break;
    }
    run->ReportMemory();
    if (run->has_update()) updates.push_back(run->TakeUpdate());
  }
  pool_.CountRows();
  figures_.predicted_wait = PredictWait(Look());
  mailbox_->SetWaiting(figures_.waiting);
  output_.publish(figures_);
  if (!updates.empty()) output_.tell(std::move(updates));
}

}  // namespace ebb::server
