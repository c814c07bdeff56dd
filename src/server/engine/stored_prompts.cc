#include "src/server/engine/stored_prompts.h"

#include <algorithm>
#include <cstdio>

#include "ebb/session_file.h"

namespace ebb::server {
namespace {

// kFirstSecondsPerToken is the assumed time to read a token until one was measured.
constexpr double kFirstSecondsPerToken = 0.001;
// kPatience limits how long a job waits for the store, as a part of the time that reading its
// prompt would take.
constexpr double kPatience = 0.25;
constexpr double kMostSecondsOfStoring = 10;  // limit of StoreAll()
constexpr double kPutAgainAfter = 1;

}  // namespace

double StoredPrompts::PatienceFor(const JobRun& run, size_t num_there) const {
  const PrefixStoreOptions& limits = store_->options();
  const double measured = figures_->seconds_per_prompt_token;
  const double of_token = measured > 0 ? measured : kFirstSecondsPerToken;
  const double reading = of_token * static_cast<double>(run.job().prompt.size() - num_there);
  return std::clamp(kPatience * reading, limits.least_patience, limits.most_patience);
}

void StoredPrompts::LookUp(JobRun* run) {
  const Job& job = run->job();
  const PrefixCache& prefixes = pool_->prefixes();
  if (store_ == nullptr || !prefixes.is_on() || !job.prefix_key.has_value() ||
      job.session.lossless.has_value()) {
    return;
  }
  lookups_.erase(job.id);
  const size_t num_there = pool_->FindPrefix(*run, job.prompt).num_tokens;
  const size_t least = num_there + store_->options().least_tokens;
  if (job.prompt.size() < least) return run->HoldUntil({});
  if (!run->state().held_until.has_value()) {
    run->HoldUntil(run->state().arrival + PatienceFor(*run, num_there));
  }
  const bool is_being_asked = std::ranges::any_of(lookups_, [&](const auto& other) {
    return other.second.is_asked && other.second.key == *job.prefix_key;
  });
  if (is_being_asked) {
    lookups_[job.id] = {.key = *job.prefix_key};
    return;
  }
  const auto tell = [mailbox = mailbox_, id = job.id, key = *job.prefix_key,
                     session = job.session](std::optional<FetchedPrefix> fetched) {
    mailbox->Post(PromptLookedUp{id, key, session, std::move(fetched)});
  };
  if (!store_->Find(*job.prefix_key, job.prompt, least, prefixes.most_bytes(), tell)) {
    return run->HoldUntil({});
  }
  lookups_[job.id] = {.key = *job.prefix_key, .is_asked = true};
}

void StoredPrompts::Take(const PromptLookedUp& answer) {
  if (answer.fetched.has_value()) {
    const FetchedPrefix& fetched = *answer.fetched;
    if (!Adopt(answer.key, answer.session, fetched)) store_->DropDamaged(fetched.id);
    std::remove(fetched.file.c_str());
  }
  JobRun* const asked = pool_->Find(answer.id);
  const auto lookup = lookups_.find(answer.id);
  if (asked != nullptr && lookup != lookups_.end() && lookup->second.is_asked) {
    lookups_.erase(lookup);
    asked->HoldUntil({});
  }
  for (const std::unique_ptr<JobRun>& other : pool_->jobs()) {
    const auto queued = lookups_.find(other->id());
    if (queued == lookups_.end() || queued->second.is_asked) continue;
    if (queued->second.key == answer.key) LookUp(other.get());
  }
}

void StoredPrompts::Begins(JobId id) {
  const auto lookup = lookups_.extract(id);
  if (!lookup.empty() && lookup.mapped().is_asked) store_->GiveUp();
}

bool StoredPrompts::Adopt(const std::string& key, SessionOptions session,
                          const FetchedPrefix& fetched) {
  session.t0_floor_bytes = 0;
  auto resumed = ResumeSession(pool_->engine(), fetched.file, session);
  while (IsLimit(resumed.status().code()) && pool_->EvictPrefix()) {
    resumed = ResumeSession(pool_->engine(), fetched.file, session);
  }
  if (!resumed.ok()) {
    const StatusCode code = resumed.status().code();
    return IsLimit(code) || code == StatusCode::kIo;
  }
  const std::string& owner = fetched.prefix.owner;
  const std::span<const Token> tokens = resumed->session->tokens();
  const bool is_bound = resumed->extra == owner && DescribePrefix(owner, tokens) == fetched.prefix;
  if (!is_bound || owner != store_->OwnerOf(key)) return false;
  pool_->prefixes().Keep(key, tokens.size(), std::move(resumed->session));
  return true;
}

void StoredPrompts::StoreNext(Plan* plan) {
  if (store_ == nullptr) return;
  const PrefixStoreOptions& limits = store_->options();
  const double settling = plan->IsIdle() ? limits.settling : limits.settling_if_busy;
  std::optional<PrefixCache::Unstored> next = pool_->prefixes().NextUnstored();
  if (next.has_value() && next->since + settling <= clock_->Now() && store_->CanPut()) {
    Store(*next);
    next = pool_->prefixes().NextUnstored();
  }
  if (!next.has_value()) return;
  const double when = store_->CanPut() ? next->since + settling
                                       : std::max(next->since, clock_->Now()) + kPutAgainAfter;
  plan->wake_at = std::min(plan->wake_at.value_or(when), when);
}

void StoredPrompts::StoreAll() {
  if (store_ == nullptr) return;
  const double end = clock_->Now() + kMostSecondsOfStoring;
  while (clock_->Now() < end) {
    const std::optional<PrefixCache::Unstored> next = pool_->prefixes().NextUnstored();
    if (!next.has_value()) return;
    Store(*next);
  }
}

// Offers each prompt to the store only once, so that a store that is too small is not rewritten
// forever.
void StoredPrompts::Store(const PrefixCache::Unstored& prefix) {
  Session* const session = prefix.session;
  pool_->prefixes().SetStored(session);
  const std::span<const Token> tokens = session->tokens();
  // Rows after the first one that the policy evicted during prefill cannot be shared, so a prompt
  // is stored only if at least half of it can be.
  const bool is_worth_it = 2 * ExactPrefix(*session, tokens) >= tokens.size();
  if (!is_worth_it || !store_->Wants(prefix.key, tokens)) return;
  const std::string file = store_->NewFile();
  const Status saved =
      SaveSession(*session, file, store_->OwnerOf(prefix.key), Durability::kUnsynced);
  if (saved.ok()) {
    store_->Put(prefix.key, tokens, file);
  } else {
    std::remove(file.c_str());
  }
}

}  // namespace ebb::server
