#include "src/server/engine/session_pool.h"

namespace ebb::server {
namespace {

int ContextOf(const Engine& engine, const SessionOptions& session) {
  return session.context > 0 ? session.context : engine.model().shape().trained_context;
}

}  // namespace

SessionPool::SessionPool(std::unique_ptr<Engine> engine, const SessionPoolOptions& options,
                         const EngineClock* clock, Figures* figures)
    : engine_(std::move(engine)),
      options_(options),
      clock_(clock),
      figures_(figures),
      prefixes_(options.prefix_cache_bytes) {
  machine_.most_running = options.most_running;
  const size_t cap = engine_->arena_accounting(Tier::kT0).cap_bytes;
  if (IsCap(cap)) t0_cap_ = cap;
  const auto& tiers = engine_->options().tiers;
  if (engine_->options().kv_cap_bytes > 0 && tiers.has_value()) {
    // T0 and T2 map memory 2 MiB at a time, and each may keep that much without a page in it: the
    // cap is reduced by 8 MiB so that their sum stays within it.
    constexpr uint64_t kRounding = uint64_t{8} << 20;
    caps_t2_too_ = true;
    t0_cap_ -= std::min(t0_cap_ / 2, kRounding);
  }
  machine_.t0_bytes = t0_cap_;
  if (tiers.has_value() && tiers->t1_cap_bytes > 0) machine_.t1_bytes = tiers->t1_cap_bytes;
  // A page holds the same number of rows in every stream, so the needs of one token are one page of
  // every stream.
  if (const auto needs = engine_->CountNeeds({}, 1, 1); needs.ok()) page_bytes_ = needs->t0_bytes;
}

JobRun* SessionPool::Find(JobId id) const {
  const auto found = std::ranges::find(jobs_, id, [](const auto& run) { return run->id(); });
  return found == jobs_.end() ? nullptr : found->get();
}

const Session* SessionPool::FindSession(JobId id) const {
  const JobRun* const run = Find(id);
  return run == nullptr ? shelf_.Find(id) : run->session();
}

JobRun* SessionPool::Add(Job job) {
  jobs_.push_back(std::make_unique<JobRun>(std::move(job), clock_, figures_));
  return jobs_.back().get();
}

Status SessionPool::Admit(JobRun* run) const {
  EBB_ASSIGN_OR_RETURN(const JobState needs, CountNeeds(run->job()));
  run->SetNeeds(needs);
  MachineState whole = machine_;
  whole.t0_bytes = t0_cap_;
  if (EverFits(run->state(), whole)) return OkStatus();
  if (caps_t2_too_) {
    return T0Full("the cache cannot hold a request of this length: it needs " +
                  std::to_string(needs.least_bytes) + " bytes of " + std::to_string(t0_cap_));
  }
  return T0Full("the tiers cannot hold a request of this length: it needs " +
                std::to_string(needs.least_bytes) + " bytes of T0 and " +
                std::to_string(needs.t1_bytes) + " of T1");
}

Result<JobState> SessionPool::CountNeeds(const Job& job) const {
  JobState state;
  SessionOptions lowest = job.session;
  const std::optional<TierSetting> tiers = TiersOf(engine_->options(), job.session);
  state.can_park = HasT1(tiers, job.session);
  state.is_elastic = state.can_park && tiers->engine.t0_cap_bytes == 0;
  if (tiers.has_value()) {
    state.share = state.most_share = tiers->shares.t0_share.value_or(kDefaultT0Share);
  }
  const size_t kept = job.work.has_value() ? job.work->num_kept : 0;
  const auto prompt = static_cast<int64_t>(kept + job.prompt.size());
  const int context = ContextOf(*engine_, job.session);
  const int64_t asked = job.generate.max_tokens < 0 ? context : job.generate.max_tokens;
  const auto most = static_cast<int>(std::min<int64_t>(context, prompt + asked));
  if (state.is_elastic) lowest.policy.tiers->t0_share = 0;
  EBB_ASSIGN_OR_RETURN(const TierNeeds needs,
                       engine_->CountNeeds(lowest, static_cast<int>(prompt), most));
  state.t1_bytes = needs.t1_bytes;
  state.t2_bytes = needs.t2_bytes;
  state.least_bytes = state.start_bytes = needs.t0_bytes;
  if (caps_t2_too_) {
    state.least_bytes = state.start_bytes += std::exchange(state.t2_bytes, 0);
  }
  if (!state.can_park) return state;
  if (state.is_elastic) {
    state.least_bytes = needs.t0_floor_bytes;
    const int begun = static_cast<int>(std::min<int64_t>(most, prompt + 1));
    EBB_ASSIGN_OR_RETURN(const TierNeeds first,
                         engine_->CountNeeds(lowest, static_cast<int>(prompt), begun));
    state.start_bytes = std::min(state.least_bytes, first.t0_bytes + page_bytes_);
  }
  // While the job is parked, T1 has all of its rows, also those of its least part.
  state.t1_bytes += state.least_bytes;
  return state;
}

void SessionPool::Remove(JobRun* run, JobEnd* end) {
  const Job& job = run->job();
  const bool failed = end->finish == FinishReason::kError || end->finish == FinishReason::kCap;
  if (!failed && run->HasAnswered() && job.prefix_key.has_value()) {
    run->session()->ForgetGuesses();
    prefixes_.Keep(*job.prefix_key, static_cast<size_t>(end->prompt_tokens), run->TakeSession(),
                   clock_->Now());
  }
  const bool rests = end->session.has_value() && end->session->error.empty();
  if (rests && shelf_.Keep(job.id, job.session, *engine_, run->TakeSession())) {
    end->resting = job.id;
  }
  std::erase_if(jobs_, [&](const auto& other) { return other.get() == run; });
  machine_.t0_bytes = t0_cap_;
  machine_.start_refused = false;
}

State SessionPool::Look() const {
  State state = {.machine = machine_, .jobs = {}};
  state.jobs.reserve(jobs_.size());
  for (const std::unique_ptr<JobRun>& run : jobs_) {
    JobState& job = state.jobs.emplace_back(run->StateNow());
    if (!IsCapped() || caps_t2_too_ || run->session() == nullptr) continue;
    job.held_bytes = run->session()->page_bytes(Tier::kT0) + run->session()->page_bytes(Tier::kT1) +
                     2 * page_bytes_;
    // A job that was never parked counts with the memory that it holds, and may grow to its least
    // part. A job that was parked counts with its whole least part, so that it is not parked again
    // right after it has resumed.
    const bool grows = job.is_elastic && job.num_parks == 0;
    if (grows)
      job.least_bytes = std::min(job.least_bytes, std::max(job.start_bytes, job.held_bytes));
  }
  return state;
}

void SessionPool::CountRows() {
  constexpr double kInterval = 0.25;  // seconds between counts, which take long
  const double now = clock_->Now();
  if (!jobs_.empty() && now < rows_counted_ + kInterval) return;
  rows_counted_ = now;
  figures_->rows = {};
  for (const std::unique_ptr<JobRun>& run : jobs_) {
    if (run->session() == nullptr) continue;
    const CacheAccounting rows = run->session()->accounting();
    for (int t = 0; t < kNumTiers; ++t) figures_->rows[t] += rows.tiers[t].rows;
  }
  figures_->prefixes = prefixes_.size();
  figures_->prefix_bytes = prefixes_.bytes();
  for (int t = 0; t < kNumTiers; ++t) {
    figures_->arenas[t] = engine_->arena_accounting(static_cast<Tier>(t));
    if (!IsCap(figures_->arenas[t].cap_bytes)) figures_->arenas[t].cap_bytes = 0;
  }
}

Result<std::unique_ptr<Session>> SessionPool::Open(JobRun* run) {
  SessionOptions session = run->job().session;
  // Under a joint cap of T0 and T2, MakeRoomForNeeds() keeps the sum of all needs below the cap; a
  // floor in T0 for each session would not.
  if (IsCapped() && !caps_t2_too_) session.t0_floor_bytes = run->state().start_bytes;
  if (options_.keeps_fates) session.ledger = SessionOptions::Record::kYes;
  if (!run->job().work.has_value()) return engine_->OpenSession(session);
  SessionTrouble trouble = SessionTrouble::kNone;
  auto opened = shelf_.Open(engine_.get(), session, *run->job().work, &trouble);
  run->SetTrouble(trouble);
  return opened;
}

void SessionPool::MakeRoomForNeeds(const JobRun& run) {
  uint64_t needed = run.state().start_bytes;
  for (const std::unique_ptr<JobRun>& other : jobs_) {
    if (other.get() != &run && other->session() != nullptr) needed += other->state().least_bytes;
  }
  while (needed + prefixes_.bytes() > t0_cap_ && EvictPrefix()) {
  }
}

SessionPool::Failure SessionPool::Start(JobRun* run) {
  if (caps_t2_too_) MakeRoomForNeeds(*run);
  auto opened = Open(run);
  if (!opened.ok()) return NotBegun(run, opened.status());
  machine_.start_refused = false;
  run->Start(*std::move(opened));
  // For a stored session the prompt begins here, because it shares no rows; for other jobs, Step()
  // calls BeginPrompt().
  if (!run->job().work.has_value() || run->job().prompt.empty()) return {};
  const Status begun = run->session()->BeginPrompt(run->TakePrompt());
  if (!begun.ok()) return JobFailure{FinishReason::kError, begun};
  return {};
}

// Handles a job that could not start or resume because memory is full: evicts a cached prompt if
// there is one; else lets the job wait if other jobs run, since their end frees memory; else fails
// the job.
SessionPool::Failure SessionPool::NotBegun(JobRun* run, const Status& status) {
  const bool is_full = IsLimit(status.code());
  const std::optional<std::string>& key = run->job().prefix_key;
  // Find() marks the cached prompt that this job would share as used, so that it is evicted last.
  if (is_full && key.has_value()) (void)prefixes_.Find(*key, run->job().prompt);
  if (is_full && EvictPrefix()) return {};
  const bool others_run = std::ranges::any_of(jobs_, [](const auto& other) {
    const Phase phase = other->state().phase;
    return phase == Phase::kReading || phase == Phase::kDecoding;
  });
  if (!is_full || !others_run) return JobFailure{FinishReason::kCap, status};
  machine_.start_refused = true;
  ++figures_->t0_refusals;
  return {};
}

SessionPool::Failure SessionPool::Park(JobRun* run) {
  Session& session = *run->session();
  Status status = session.SetT0Floor(0);
  if (status.ok()) status = session.Park();
  // Cached prompts may fill T1, so that parking first needs to evict them.
  while (IsLimit(status.code()) && EvictPrefix()) status = session.Park();
  if (!status.ok()) return JobFailure{FinishReason::kError, status};
  run->Park();
  return {};
}

SessionPool::Failure SessionPool::Resume(JobRun* run) {
  Session& session = *run->session();
  const JobState& state = run->state();
  Status status = session.SetT0Floor(state.least_bytes);
  // Promotes the rows that the job needs in T0 now; else they would stay in T1 until the policy's
  // next decision.
  if (status.ok() && state.is_elastic) status = session.SetT0Share(state.share);
  if (!status.ok()) {
    // Sets the floor to 0, because a parked job must not reserve T0 that others need.
    const Status released = session.SetT0Floor(0);
    return NotBegun(run, released.ok() ? status : released);
  }
  run->Resume();
  return {};
}

SessionPool::Failure SessionPool::SetShare(JobRun* run, double share) {
  const Status status = run->session()->SetT0Share(share);
  ++figures_->share_changes;
  if (status.ok()) {
    run->SetShare(share);
  } else if (IsLimit(status.code())) {
    NoteRefusal();
  } else {
    return JobFailure{FinishReason::kError, status};
  }
  return {};
}

SessionPool::Failure SessionPool::BeginPrompt(JobRun* run) {
  if (run->HasBegunPrompt()) return {};
  std::vector<Token> prompt = run->TakePrompt();
  if (prefixes_.is_on() && run->job().prefix_key.has_value()) {
    figures_->prefix_queries += prompt.size();
  }
  if (const PrefixSource source = FindPrefix(*run, prompt); source.num_tokens > 0) {
    if (TakePrefix(run, source, prompt)) return BringToT0(run);
    // A session that failed to share rows is unusable; a new one reads the whole prompt.
    run->SetSession(nullptr);
    auto opened = Open(run);
    if (!opened.ok()) return JobFailure{FinishReason::kCap, opened.status()};
    run->SetSession(*std::move(opened));
  }
  const Status begun = run->session()->BeginPrompt(std::move(prompt));
  if (!begun.ok()) return JobFailure{FinishReason::kError, begun};
  return {};
}

PrefixSource SessionPool::FindPrefix(const JobRun& run, std::span<const Token> prompt) {
  const std::optional<std::string>& key = run.job().prefix_key;
  if (!prefixes_.is_on() || !key.has_value()) return {};
  PrefixSource best = prefixes_.Find(*key, prompt);
  for (const std::unique_ptr<JobRun>& other : jobs_) {
    const bool may_share = other.get() != &run && other->HasBegunPrompt();
    if (may_share && other->job().prefix_key == key) {
      best = BetterSource(best, other->session(), prompt);
    }
  }
  return best;
}

bool SessionPool::TakePrefix(JobRun* run, const PrefixSource& source,
                             const std::vector<Token>& prompt) {
  const auto num_taken = BeginPromptFrom(source.session, prompt, run->session());
  if (!num_taken.ok()) return false;
  run->SetCachedTokens(*num_taken);
  figures_->prefix_hits += *num_taken;
  if (options_.prefix_store != nullptr) {
    options_.prefix_store->Use(*run->job().prefix_key, std::span(prompt).first(*num_taken));
  }
  return true;
}

// Promotes the rows that the job shares with another session to T0, if that session had them in T1.
SessionPool::Failure SessionPool::BringToT0(JobRun* run) {
  const bool lies_in_t1 = run->session()->page_bytes(Tier::kT1) > 0;
  if (!lies_in_t1 || !run->state().is_elastic) return {};
  return SetShare(run, run->state().share);
}

// Forks the session only if T0 has no cap: forks share pages with free slots that neither can use,
// and floors of T0 do not count them.
std::vector<JobRun*> SessionPool::ForkToIdenticalPrompts(const JobRun& run) {
  const std::span<const Token> prompt = run.session()->tokens();
  const std::optional<std::string>& key = run.job().prefix_key;
  if (!prefixes_.is_on() || !key.has_value() || IsCapped() ||
      ExactPrefix(*run.session(), prompt) > 0) {
    return {};
  }
  std::vector<JobRun*> forked;
  for (const std::unique_ptr<JobRun>& other : jobs_) {
    const bool waits_to_read = other->state().phase == Phase::kReading && !other->HasBegunPrompt();
    if (!waits_to_read || other->job().prefix_key != key) continue;
    if (!std::ranges::equal(other->job().prompt, prompt)) continue;
    auto fork = run.session()->Fork();
    if (!fork.ok()) continue;  // without a fork, the job reads its prompt itself
    other->SetSession(*std::move(fork));
    other->SetCachedTokens(other->TakePrompt().size());
    figures_->prefix_queries += prompt.size();
    figures_->prefix_hits += prompt.size();
    forked.push_back(other.get());
  }
  return forked;
}

bool SessionPool::EvictPrefix() {
  const PrefixCache::Evicted evicted = prefixes_.EvictOne();
  if (evicted == PrefixCache::Evicted::kDemotedToT1) ++figures_->prefixes_demoted;
  if (evicted == PrefixCache::Evicted::kDropped) ++figures_->prefixes_dropped;
  return evicted != PrefixCache::Evicted::kNothing;
}

void SessionPool::NoteRefusal() {
  if (EvictPrefix()) return;
  machine_.t0_refused = true;
  ++figures_->t0_refusals;
  if (!IsCapped() || caps_t2_too_) return;
  const ArenaAccounting t0 = engine_->arena_accounting(Tier::kT0);
  machine_.t0_bytes = std::min<uint64_t>(machine_.t0_bytes, t0.used_bytes + t0.pledged_bytes);
}

}  // namespace ebb::server
