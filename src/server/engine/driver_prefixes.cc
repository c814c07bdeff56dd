// Prompts in the session store: looked up before a job begins, and written while the engine is
// idle.
#include <algorithm>
#include <cstdio>

#include "ebb/session_file.h"
#include "src/server/engine/driver_impl.h"

namespace ebb::server {
namespace {

// Assumed until a step has shown how long reading takes.
constexpr double kFirstSecondsPerToken = 0.001;
// A job waits for the store at most for this part of the time that reading its prompt would take.
constexpr double kPatience = 0.25;
constexpr double kMostSecondsOfStoring = 10;  // when the server stops
constexpr double kPutAgainAfter = 1;

}  // namespace

double Driver::Impl::PatienceFor(const Active& active, size_t num_there) const {
  const PrefixStoreOptions& limits = options.prefix_store->options();
  const double measured = machine.seconds_per_prompt_token;
  const double of_token = measured > 0 ? measured : kFirstSecondsPerToken;
  const double reading = of_token * static_cast<double>(active.job.prompt.size() - num_there);
  return std::clamp(kPatience * reading, limits.least_patience, limits.most_patience);
}

void Driver::Impl::LookUp(Active* active) {
  PrefixStore* const store = options.prefix_store.get();
  const Job& job = active->job;
  if (store == nullptr || !prefixes.is_on() || !job.prefix_key.has_value() ||
      job.session.lossless.has_value()) {
    return;
  }
  active->lookup = Lookup::kNone;
  const size_t num_there = FindPrefix(*active, job.prompt).num_tokens;
  const size_t least = num_there + store->options().least_tokens;
  if (job.prompt.size() < least) return active->state.held_until.reset();
  if (!active->state.held_until.has_value()) {
    active->state.held_until = active->state.arrival + PatienceFor(*active, num_there);
  }
  const bool is_being_asked = std::ranges::any_of(actives, [&](const auto& other) {
    return other->lookup == Lookup::kAsked && other->job.prefix_key == job.prefix_key;
  });
  if (is_being_asked) {
    active->lookup = Lookup::kQueued;
    return;
  }
  const auto tell = [this, id = job.id, key = *job.prefix_key,
                     session = job.session](std::optional<FetchedPrefix> fetched) {
    Ask([this, id, key, session, fetched = std::move(fetched)] {
      LookedUp(id, key, session, fetched);
    });
  };
  if (!store->Find(*job.prefix_key, job.prompt, least, prefixes.most_bytes(), tell)) {
    return active->state.held_until.reset();
  }
  active->lookup = Lookup::kAsked;
}

void Driver::Impl::LookedUp(JobId id, const std::string& key, const SessionOptions& session,
                            const std::optional<FetchedPrefix>& fetched) {
  if (fetched.has_value()) {
    if (!Adopt(key, session, *fetched)) options.prefix_store->DropDamaged(fetched->id);
    std::remove(fetched->file.c_str());
  }
  Active* const asked = Find(id);
  if (asked != nullptr && asked->lookup == Lookup::kAsked) {
    asked->lookup = Lookup::kNone;
    asked->state.held_until.reset();
  }
  for (const std::unique_ptr<Active>& other : actives) {
    if (other->lookup == Lookup::kQueued && other->job.prefix_key == key) LookUp(other.get());
  }
}

bool Driver::Impl::Adopt(const std::string& key, SessionOptions session,
                         const FetchedPrefix& fetched) {
  session.t0_floor_bytes = 0;
  auto resumed = ResumeSession(*engine, fetched.file, session);
  while (IsLimit(resumed.status().code()) && EvictPrefix()) {
    resumed = ResumeSession(*engine, fetched.file, session);
  }
  if (!resumed.ok()) {
    const StatusCode code = resumed.status().code();
    return IsLimit(code) || code == StatusCode::kIo;
  }
  const std::string& owner = fetched.prefix.owner;
  const std::span<const Token> tokens = resumed->session->tokens();
  const bool is_bound = resumed->extra == owner && DescribePrefix(owner, tokens) == fetched.prefix;
  if (!is_bound || owner != options.prefix_store->OwnerOf(key)) return false;
  prefixes.Keep(key, tokens.size(), std::move(resumed->session));
  return true;
}

void Driver::Impl::StorePrefixes(Plan* plan) {
  PrefixStore* const store = options.prefix_store.get();
  if (store == nullptr) return;
  const PrefixStoreOptions& limits = store->options();
  const double settling = plan->IsIdle() ? limits.settling : limits.settling_if_busy;
  std::optional<PrefixCache::Unstored> next = prefixes.NextUnstored();
  if (next.has_value() && next->since + settling <= Now() && store->CanPut()) {
    Store(*next);
    next = prefixes.NextUnstored();
  }
  if (!next.has_value()) return;
  const double when =
      store->CanPut() ? next->since + settling : std::max(next->since, Now()) + kPutAgainAfter;
  plan->wake_at = std::min(plan->wake_at.value_or(when), when);
}

void Driver::Impl::StoreAllPrefixes() {
  if (options.prefix_store == nullptr) return;
  const double end = Now() + kMostSecondsOfStoring;
  while (Now() < end) {
    const std::optional<PrefixCache::Unstored> next = prefixes.NextUnstored();
    if (!next.has_value()) return;
    Store(*next);
  }
}

// Offers each prompt to the store once, so that servers whose store is too small do not rewrite it
// for ever.
void Driver::Impl::Store(const PrefixCache::Unstored& prefix) {
  PrefixStore* const store = options.prefix_store.get();
  Session* const session = prefix.session;
  prefixes.SetStored(session);
  const std::span<const Token> tokens = session->tokens();
  // Rows behind the first one that the policy evicted while it read the prompt cannot be shared.
  const bool is_worth_it = 2 * ExactPrefix(*session, tokens) >= tokens.size();
  if (!is_worth_it || !store->Wants(prefix.key, tokens)) return;
  const std::string file = store->NewFile();
  const Status saved =
      SaveSession(*session, file, store->OwnerOf(prefix.key), Durability::kUnsynced);
  if (saved.ok()) {
    store->Put(prefix.key, tokens, file);
  } else {
    std::remove(file.c_str());
  }
}

}  // namespace ebb::server
