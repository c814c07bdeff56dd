// Invariants:
// 1. `held` has a session as long as this server has its lease; `is_used` is true as long as a
//    request fetches the session or may change it.
// 2. Each file in `scratch` has a unique name (NewScratchPath) and belongs to one use, one write or
//    one unsaved session, which removes it.
// 3. A job that was begun ends once: the keeper first writes the session that the job saved, then
//    delivers the end.
#include "src/server/sessions/session_keeper.h"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "src/server/sessions/session_keeper_impl.h"
#include "src/server/sessions/session_turn.h"

namespace ebb::server {
namespace {

using store::Held;
using store::Lease;
using store::Manifest;
using store::NowMs;
using store::SessionName;

constexpr double kMostBackOff = 60;      // limit of the seconds before a save is retried
constexpr double kSweepEvery = 3600;     // seconds between removals of expired sessions
constexpr double kAskAgainAfter = 0.05;  // seconds between tries for another server's lease

Clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

std::optional<ApiError> CheckTraits(const Manifest& manifest, const SessionTraits& traits) {
  const auto differs = [&](const char* what, const std::string& found,
                           const std::string& expected) -> std::optional<ApiError> {
    if (found == expected) return std::nullopt;
    return ApiError{.status = 409,
                    .message = fmt::format("the session was made with another {}: expected \"{}\", "
                                           "found \"{}\"",
                                           what, expected, found),
                    .code = "session_mismatch",
                    .param = "ebb.session",
                    .is_final = true};
  };
  if (auto error = differs("model", manifest.model, traits.model)) return error;
  auto error = differs("set of tiers", manifest.tiers, traits.tiers);
  // Reports differing tiers rather than differing policies: tiers change the default policy too.
  if (!error) return differs("policy", manifest.policy, traits.policy);
  if (manifest.tiers == kNoTiers) {
    error->message = fmt::format(
        "the session was made by a server without tiers, and this one keeps rows in {}: start the "
        "server without --t0, --t1, --t2 and --evict, or name another session",
        traits.tiers);
  } else if (traits.tiers == kNoTiers) {
    error->message = fmt::format(
        "the session was made by a server with {}, and this one has no tiers: start the server "
        "with these options, or name another session",
        manifest.tiers);
  } else {
    error->message += ": start the server with the tiers found, or name another session";
  }
  return error;
}

}  // namespace

ApiError StoreError(const Status& status) {
  ApiError error = {.status = 503,
                    .message = status.message(),
                    .code = "session_store_unavailable",
                    .param = "ebb.session",
                    .retry_after = 2};
  if (status.code() == StatusCode::kStorageFull) {
    error.code = "session_store_full";
    error.retry_after = kMostBackOff;
  } else if (status.code() == StatusCode::kCorrupt || status.code() == StatusCode::kUnsupported) {
    error.status = 409;
    error.code = status.code() == StatusCode::kCorrupt ? "session_corrupt" : "session_mismatch";
    error.retry_after.reset();
    error.is_final = true;
  } else if (status.code() == StatusCode::kInvalidArgument) {
    error = Invalid(status.message(), "ebb.session");
  }
  return error;
}

ApiError BusyError(const SessionName& name) {
  return {.status = 409,
          .message = fmt::format("another request uses session \"{}\"", name.id),
          .code = "session_busy",
          .param = "ebb.session",
          .retry_after = 1};
}

SessionKeeper::Impl::Impl(std::unique_ptr<store::SessionStore> store_in,
                          const SessionKeeperOptions& options_in, Hooks hooks_in,
                          ScratchFolder scratch_in)
    : store(std::move(store_in)),
      options(options_in),
      hooks(std::move(hooks_in)),
      scratch(std::move(scratch_in)) {
  clock = std::thread([this] { RunClock(); });
}

void SessionKeeper::Impl::Wait(const Waiting& entry) {
  if (Clock::now() >= entry->deadline) return entry->then(BusyError(entry->name));
  waiting.push_back(entry);
  UpdateClock();
}

void SessionKeeper::Impl::Enter(const Waiting& entry) {
  if (const Holding found = Find(entry->name)) {
    const bool is_free = !found->is_used && !found->is_writing;
    if (is_free) return Adopt(entry, found);
    return Wait(entry);
  }
  Ask(
      &working, [this, entry] { return store->Acquire(entry->name); },
      [this, entry](const auto& lease) { Acquired(entry, lease); });
}

void SessionKeeper::Impl::Acquired(const Waiting& entry,
                                   const Result<std::optional<Lease>>& lease) {
  if (!lease.ok()) return entry->then(StoreError(lease.status()));
  if (!lease->has_value()) {
    return Wait(entry);
  }
  const auto holding = std::make_shared<HeldSession>();
  holding->use = std::make_shared<SessionUse>(SessionUse{
      .name = entry->name, .traits = entry->traits, .lease = **lease, .created_ms = NowMs()});
  // The lease is renewed from now on, since fetching a session may take longer than a lease lasts.
  held[entry->name] = holding;
  UpdateClock();
  const auto copy = copies.find(entry->name);
  const std::string generation = copy == copies.end() ? "" : copy->second.generation;
  Ask(
      &working, [this, begun = *holding->use, generation] { return Fetch(begun, generation); },
      [this, entry, holding](auto result) { Entered(entry, holding, std::move(result)); });
}

ApiResult<std::shared_ptr<SessionUse>> SessionKeeper::Impl::Fetch(
    const SessionUse& begun, const std::string& resting_generation) {
  const auto use = std::make_shared<SessionUse>(begun);
  auto stored = store->Describe(use->name);
  if (!stored.ok()) return StoreError(stored.status());
  if (!stored->has_value()) return use;
  const Manifest& manifest = (*stored)->manifest;
  if (auto error = CheckTraits(manifest, use->traits)) return *std::move(error);
  auto record = DecodeRecord((*stored)->record);
  if (!record.ok()) return StoreError(record.status());
  use->record = *std::move(record);
  use->created_ms = manifest.created_ms;
  use->generation = manifest.generation;
  if (manifest.generation == resting_generation) return use;
  use->file = NewScratchPath(scratch.path(), "fetched");
  if (const Status status = store->Get(manifest, use->file); !status.ok()) {
    RemoveFile(use->file);
    return StoreError(status);
  }
  return use;
}

void SessionKeeper::Impl::Entered(const Waiting& entry, const Holding& holding,
                                  ApiResult<std::shared_ptr<SessionUse>> result) {
  if (!result.ok()) {
    if (!holding->is_lost) Release(holding->use->lease);
    Drop(holding);
    return entry->then(std::move(result).error());
  }
  const auto& use = *result;
  holding->use = use;
  // Another server may have changed the session, so that the request waits for the lease again if
  // its deadline allows.
  if (holding->is_lost) {
    Drop(holding);
    return Wait(entry);
  }
  const auto copy = copies.find(entry->name);
  if (copy != copies.end()) {
    if (use->file.empty() && copy->second.generation == use->generation) {
      use->resting = copy->second.number;
      copies.erase(copy);
    } else {
      DropCopy(entry->name);
    }
  }
  // While the store was asked, the copy in memory was dropped, and Fetch() relied on it and fetched
  // no file. Starts again.
  const bool is_nowhere = !use->generation.empty() && use->file.empty() && !use->resting;
  if (is_nowhere) {
    Drop(holding);
    Release(use->lease);
    return Enter(entry);
  }
  if (!use->file.empty()) ++counted.fetched;
  UpdateClock();
  entry->then(use);
}

// Lets the request of `entry` use a session of `held` that no request uses. Its unsaved state is
// newer than the store's, so that the request continues from it.
void SessionKeeper::Impl::Adopt(const Waiting& entry, const Holding& found) {
  const SessionUse& old = *found->use;
  if (old.traits.policy != entry->traits.policy || old.traits.tiers != entry->traits.tiers) {
    Manifest manifest;
    manifest.model = old.traits.model;
    manifest.policy = old.traits.policy;
    manifest.tiers = old.traits.tiers;
    return entry->then(*CheckTraits(manifest, entry->traits));
  }
  auto use = std::make_shared<SessionUse>(old);
  use->record = found->unsaved->record;
  use->file = found->unsaved->file;
  found->use = use;
  found->is_used = true;
  UpdateClock();
  entry->then(use);
}

void SessionKeeper::Impl::Advance(const Holding& holding) {
  if (holding->is_writing) return;
  if (holding->next.has_value()) {
    SavedSession next = *std::exchange(holding->next, std::nullopt);
    if (!holding->is_lost) return Write(holding, std::move(next));
    RemoveFile(next.file);
  }
  if (holding->end.has_value()) Conclude(holding);
}

void SessionKeeper::Impl::Write(const Holding& holding, SavedSession saved) {
  struct Outcome {
    Result<Held> held;
    Manifest manifest;
    SavedSession saved;
  };
  holding->is_writing = true;
  const SessionUse& use = *holding->use;
  const SessionRecord& record = saved.record;
  Manifest manifest;
  manifest.model = use.traits.model;
  manifest.policy = use.traits.policy;
  manifest.tiers = use.traits.tiers;
  manifest.tokens = static_cast<uint64_t>(record.num_tokens);
  manifest.created_ms = use.created_ms;
  manifest.used_ms = NowMs();
  manifest.expires_ms = manifest.used_ms + static_cast<int64_t>(options.lifetime * 1000);
  manifest.in_progress = !record.is_over;
  manifest.answer_tokens = record.answer.tokens.size();
  Ask(
      &working,
      [this, lease = use.lease, manifest, saved = std::move(saved)]() mutable {
        Result<Held> outcome = store->Put(lease, saved.file, EncodeRecord(saved.record), &manifest);
        return Outcome{std::move(outcome), std::move(manifest), std::move(saved)};
      },
      [this, holding](Outcome outcome) {
        Written(holding, std::move(outcome.saved), outcome.held, outcome.manifest);
      });
}

void SessionKeeper::Impl::Written(const Holding& holding, SavedSession saved,
                                  const Result<Held>& outcome, const Manifest& manifest) {
  holding->is_writing = false;
  const auto replace_unsaved = [&](std::optional<SavedSession> by) {
    if (holding->unsaved.has_value() && (!by.has_value() || by->file != holding->unsaved->file)) {
      // The use that was resumed from this file has read it by now, or will end with an error.
      RemoveFile(holding->unsaved->file);
    }
    holding->unsaved = std::move(by);
  };
  if (!outcome.ok()) {
    ++counted.not_saved;
    holding->error = outcome.status().Text();
    // While a request uses the session, each failure is of another checkpoint, so that the back-off
    // does not grow.
    holding->back_off = holding->is_used ? 1 : std::min(kMostBackOff, 2 * holding->back_off);
    holding->retry_at = Clock::now() + Seconds(holding->back_off);
    replace_unsaved(std::move(saved));
  } else if (*outcome == Held::kNo) {
    RemoveFile(saved.file);
    Lose(holding);
  } else {
    ++counted.saved;
    holding->use->generation = manifest.generation;
    holding->back_off = 1;
    replace_unsaved(std::nullopt);
    RemoveFile(saved.file);
    const bool was_retried = !holding->is_used;
    if (was_retried) return Rest(holding, holding->use->resting);
  }
  Advance(holding);
}

void SessionKeeper::Impl::Conclude(const Holding& holding) {
  JobUpdate update = *std::exchange(holding->end, std::nullopt);
  JobEnd& end = *update.end;
  if (end.session.has_value()) {
    end.session->id = holding->use->name.id;
    end.session->is_saved = end.session->error.empty() && !holding->unsaved.has_value();
    if (holding->unsaved.has_value()) end.session->error = holding->error;
  }
  if (holding->is_lost) {
    if (end.resting.has_value()) hooks.discard(*end.resting);
    end.finish = FinishReason::kError;
    end.error = Cancelled("another server has taken this session over");
    end.trouble = SessionTrouble::kLeaseLost;
    end.session.reset();
    Drop(holding);
  } else {
    Rest(holding, end.resting);
  }
  // Delivers the end after the current update was handled.
  hooks.post([this, last = std::make_shared<JobUpdate>(std::move(update))] {
    hooks.deliver(std::move(*last));
  });
}

void SessionKeeper::Impl::Rest(const Holding& holding, std::optional<uint64_t> resting) {
  SessionUse& use = *holding->use;
  holding->is_used = false;
  const bool is_unsaved = holding->unsaved.has_value();
  if (!use.file.empty() && !(is_unsaved && holding->unsaved->file == use.file)) {
    RemoveFile(use.file);
  }
  use.file.clear();
  use.resting = resting;
  if (is_unsaved) return UpdateClock();
  if (resting.has_value()) KeepCopy(use.name, *resting, use.generation);
  Release(use.lease);
  Forget(holding);
  UpdateClock();
}

// Handles the loss of a lease: another server has it, so that all copies of the session here are
// out of date.
void SessionKeeper::Impl::Lose(const Holding& holding) {
  ++counted.lost;
  holding->is_lost = true;
  if (holding->is_used) {
    if (holding->job != 0) hooks.cancel(holding->job);
    return;
  }
  if (holding->use->resting.has_value()) hooks.discard(*holding->use->resting);
  Drop(holding);
}

void SessionKeeper::Impl::Drop(const Holding& holding) {
  if (!holding->use->file.empty()) RemoveFile(holding->use->file);
  if (holding->unsaved.has_value()) RemoveFile(holding->unsaved->file);
  Forget(holding);
  UpdateClock();
}

void SessionKeeper::Impl::Forget(const Holding& holding) {
  const auto found = held.find(holding->use->name);
  if (found != held.end() && found->second == holding) held.erase(found);
}

void SessionKeeper::Impl::KeepCopy(const SessionName& name, uint64_t number,
                                   const std::string& generation) {
  copies[name] = {number, generation, Clock::now()};
  if (copies.size() <= options.most_resting) return;
  const auto used = [](const auto& entry) { return entry.second.used; };
  DropCopy(std::ranges::min_element(copies, {}, used)->first);
}

void SessionKeeper::Impl::DropCopy(const SessionName& name) {
  const auto found = copies.find(name);
  if (found == copies.end()) return;
  hooks.discard(found->second.number);
  copies.erase(found);
}

void SessionKeeper::Impl::RemoveFile(const std::string& file) {
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
}

void SessionKeeper::Impl::Release(const Lease& lease) {
  // Releases on the thread of renewals, after any renewal that is running, because that would
  // acquire the lease again. If the release fails, the lease expires.
  boost::asio::post(renewing, [this, lease] { static_cast<void>(store->Release(lease)); });
}

void SessionKeeper::Impl::Tick() {
  const Clock::time_point now = Clock::now();
  for (const Waiting& entry : std::exchange(waiting, {})) {
    now >= entry->deadline ? entry->then(BusyError(entry->name)) : Enter(entry);
  }
  const auto holdings = held;
  for (const auto& [name, holding] : holdings) {
    const bool is_due = now - holding->renewed >= Seconds(options.limits.lease / 3);
    if (is_due && !holding->is_lost && !holding->is_renewing) Renew(holding);
    const bool is_unsaved = !holding->is_used && !holding->is_writing && !holding->is_lost;
    if (is_unsaved && holding->unsaved.has_value() && now >= holding->retry_at) {
      Write(holding, *holding->unsaved);
    }
  }
  const auto resting = copies;
  for (const auto& [name, copy] : resting) {
    if (now - copy.used >= Seconds(options.idle)) DropCopy(name);
  }
  if (swept == Clock::time_point() || now - swept >= Seconds(kSweepEvery)) {
    swept = now;
    boost::asio::post(working, [this] { static_cast<void>(store->Sweep()); });
  }
  UpdateClock();
}

void SessionKeeper::Impl::Renew(const Holding& holding) {
  holding->is_renewing = true;
  Ask(
      &renewing, [this, lease = holding->use->lease] { return store->Renew(lease); },
      [this, holding](const Result<Held>& outcome) {
        holding->is_renewing = false;
        if (!outcome.ok()) return;  // the store does not answer; the next tick tries again
        holding->renewed = Clock::now();
        const Holding found = Find(holding->use->name);
        if (*outcome == Held::kNo && found == holding && !holding->is_lost) Lose(holding);
      });
}

// Sets the clock's period. The clock runs only while a lease, a retry or a copy in memory has to be
// watched.
void SessionKeeper::Impl::UpdateClock() {
  std::optional<double> wanted;
  if (!copies.empty()) wanted = 1;
  if (!held.empty()) wanted = std::min(1.0, options.limits.lease / 6);
  if (!waiting.empty()) wanted = kAskAgainAfter;
  const MutexLock lock(mutex);
  period = wanted;
  num_used = static_cast<size_t>(
      std::ranges::count_if(held, [](const auto& entry) { return entry.second->is_used; }));
  changed.NotifyAll();
}

void SessionKeeper::Impl::RunClock() {
  MutexLock lock(mutex);
  while (!is_stopped) {
    if (!period.has_value()) {
      changed.Wait(mutex);
      continue;
    }
    const double seconds = *period;
    const Clock::time_point end = Clock::now() + Seconds(seconds);
    bool is_sooner = false;
    while (!is_sooner && changed.WaitUntil(mutex, end)) {
      is_sooner = is_stopped || (period.has_value() && *period < seconds);
    }
    if (is_sooner) continue;
    lock.Unlock();
    hooks.post([this] { Tick(); });
    lock.Lock();
  }
}

SessionKeeper::SessionKeeper() = default;
SessionKeeper::~SessionKeeper() {
  Stop();
  for (const auto& [name, holding] : impl_->held) {
    // If the store does not answer, the leases expire.
    if (!impl_->store->Release(holding->use->lease).ok()) break;
  }
}

Result<std::unique_ptr<SessionKeeper>> SessionKeeper::Create(
    std::unique_ptr<store::SessionStore> store, const SessionKeeperOptions& options, Hooks hooks) {
  EBB_ASSIGN_OR_RETURN(ScratchFolder scratch, ScratchFolder::Create());
  std::unique_ptr<SessionKeeper> keeper(new SessionKeeper());
  keeper->impl_ =
      std::make_unique<Impl>(std::move(store), options, std::move(hooks), std::move(scratch));
  return keeper;
}

void SessionKeeper::Enter(const SessionName& name, const SessionTraits& traits, Entered then,
                          bool waits) {
  const double patience = waits ? impl_->options.limits.lease + 1 : 0;
  impl_->Enter(std::make_shared<WaitingEntry>(
      WaitingEntry{name, traits, std::move(then), Clock::now() + Seconds(patience)}));
}

void SessionKeeper::Leave(const std::shared_ptr<SessionUse>& use) {
  const Holding holding = impl_->Find(use->name);
  if (holding == nullptr || holding->use != use) return;
  impl_->jobs.erase(std::exchange(holding->job, 0));
  if (holding->is_lost) return impl_->Drop(holding);
  impl_->Rest(holding, use->resting);
}

bool SessionKeeper::Begin(const std::shared_ptr<SessionUse>& use, JobId job, SessionWork* work) {
  work->resting = use->resting;
  work->file = use->file;
  work->tenant = use->name.tenant;
  work->file_tag = use->record.file_tag;
  work->file_tokens = use->record.num_tokens;
  work->folder = impl_->scratch.path();
  work->checkpoint_every = impl_->options.checkpoint_every;
  const Holding holding = impl_->Find(use->name);
  if (holding == nullptr || holding->use != use) return true;
  holding->job = job;
  impl_->jobs[job] = holding;
  return !holding->is_lost;
}

bool SessionKeeper::Take(JobUpdate* update) {
  const auto found = impl_->jobs.find(update->id);
  if (found == impl_->jobs.end()) return false;
  const Holding holding = found->second;
  if (update->saved.has_value()) {
    if (holding->next.has_value()) impl_->RemoveFile(holding->next->file);
    holding->next = *std::exchange(update->saved, std::nullopt);
  }
  if (update->end.has_value()) {
    impl_->jobs.erase(found);
    holding->job = 0;
    holding->end = JobUpdate{.id = update->id, .end = std::exchange(update->end, std::nullopt)};
  }
  impl_->Advance(holding);
  return true;
}

void SessionKeeper::WaitUntilSaved(double seconds) {
  const Clock::time_point end = Clock::now() + Seconds(seconds);
  const MutexLock lock(impl_->mutex);
  while (impl_->num_used > 0 && impl_->changed.WaitUntil(impl_->mutex, end)) {
  }
}

void SessionKeeper::Stop() {
  {
    const MutexLock lock(impl_->mutex);
    if (impl_->is_stopped) return;
    impl_->is_stopped = true;
  }
  impl_->changed.NotifyAll();
  impl_->clock.join();
  impl_->working.join();
  impl_->renewing.join();
}

}  // namespace ebb::server
