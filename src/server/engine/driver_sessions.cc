// The sessions of jobs: opened, parked and resumed; where a prompt begins; how much of T0 each has.
#include "src/server/engine/driver_impl.h"

namespace ebb::server {

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
  const Lookup lookup = std::exchange(active->lookup, Lookup::kNone);
  if (lookup == Lookup::kAsked) options.prefix_store->GiveUp();
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

// While other jobs run, it waits for them to end or to be parked.
void Driver::Impl::NotBegun(Active* active, const Status& status) {
  const bool is_full = IsLimit(status.code());
  const std::optional<std::string>& key = active->job.prefix_key;
  // The one that it would take rows from goes last.
  if (is_full && key.has_value()) (void)prefixes.Find(*key, active->job.prompt);
  if (is_full && EvictPrefix()) return;
  const bool others_run = std::ranges::any_of(actives, [](const auto& other) {
    return other->state.phase == Phase::kReading || other->state.phase == Phase::kDecoding;
  });
  if (!is_full || !others_run) return Finish(active, FinishReason::kCap, status);
  machine.start_refused = true;
  ++counted.t0_refusals;
}

void Driver::Impl::Park(Active* active) {
  Status status = active->session->SetT0Floor(0);
  if (status.ok()) status = active->session->Park();
  // Cached prefixes may hold the room in T1 that it needs.
  while (IsLimit(status.code()) && EvictPrefix()) {
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

void Driver::Impl::SetShare(Active* active, double share) {
  const Status status = active->session->SetT0Share(share);
  ++counted.share_changes;
  if (status.ok()) {
    active->state.share = share;
  } else if (IsLimit(status.code())) {
    NoteRefusal();
  } else {
    Finish(active, FinishReason::kError, status);
  }
}

bool Driver::Impl::BeginPrompt(Active* active) {
  if (active->HasBegunPrompt()) return true;
  std::vector<Token> prompt = std::exchange(active->job.prompt, {});
  if (prefixes.is_on() && active->job.prefix_key.has_value()) {
    counted.prefix_queries += prompt.size();
  }
  if (const PrefixSource source = FindPrefix(*active, prompt); source.num_tokens > 0) {
    if (TakePrefix(active, source, prompt)) return BringToT0(active);
    // The session is unusable after a failure.
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
  return best;
}

bool Driver::Impl::TakePrefix(Active* active, const PrefixSource& source,
                              const std::vector<Token>& prompt) {
  const auto num_taken = BeginPromptFrom(source.session, prompt, active->session.get());
  if (!num_taken.ok()) return false;
  active->cached_tokens = static_cast<int>(*num_taken);
  counted.prefix_hits += *num_taken;
  if (options.prefix_store != nullptr) {
    options.prefix_store->Use(*active->job.prefix_key, std::span(prompt).first(*num_taken));
  }
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
void Driver::Impl::ForkToIdenticalPrompts(Active* active) {
  const std::span<const Token> prompt = active->session->tokens();
  const bool has_key = active->job.prefix_key.has_value();
  if (!prefixes.is_on() || !has_key || IsCapped() || ExactPrefix(*active->session, prompt) > 0)
    return;
  std::vector<Active*> duplicates;
  for (const std::unique_ptr<Active>& other : actives) {
    const bool waits_to_read = other->state.phase == Phase::kReading && !other->HasBegunPrompt();
    if (!waits_to_read || other->job.prefix_key != active->job.prefix_key) continue;
    if (std::ranges::equal(other->job.prompt, prompt)) duplicates.push_back(other.get());
  }
  for (Active* duplicate : duplicates) {
    if (!ForkTo(duplicate, active->session.get())) continue;
    NoteProgress(duplicate);
    Begin(duplicate);
  }
}

bool Driver::Impl::ForkTo(Active* duplicate, Session* from) {
  auto fork = from->Fork();
  if (!fork.ok()) return false;
  duplicate->session = *std::move(fork);
  duplicate->cached_tokens = static_cast<int>(std::exchange(duplicate->job.prompt, {}).size());
  counted.prefix_queries += duplicate->cached_tokens;
  counted.prefix_hits += duplicate->cached_tokens;
  return true;
}

void Driver::Impl::KeepPrefix(Active* active, const JobEnd& end) {
  const bool failed = end.finish == FinishReason::kError || end.finish == FinishReason::kCap;
  if (failed || active->generation == nullptr || !active->job.prefix_key.has_value()) return;
  active->generation.reset();  // it refers to the session
  prefixes.Keep(*std::move(active->job.prefix_key), static_cast<size_t>(end.prompt_tokens),
                std::move(active->session), Now());
}

bool Driver::Impl::EvictPrefix() {
  const PrefixCache::Evicted evicted = prefixes.EvictOne();
  if (evicted == PrefixCache::Evicted::kDemotedToT1) ++counted.prefixes_sunk;
  if (evicted == PrefixCache::Evicted::kDropped) ++counted.prefixes_dropped;
  return evicted != PrefixCache::Evicted::kNothing;
}

// Prefixes go first. Then, until a job has ended, no more of T0 is counted on than it held now.
void Driver::Impl::NoteRefusal() {
  if (EvictPrefix()) return;
  machine.t0_refused = true;
  ++counted.t0_refusals;
  if (!IsCapped()) return;
  const ArenaAccounting t0 = engine->arena_accounting(Tier::kT0);
  machine.t0_bytes = std::min<uint64_t>(machine.t0_bytes, t0.used_bytes + t0.pledged_bytes);
}

}  // namespace ebb::server
