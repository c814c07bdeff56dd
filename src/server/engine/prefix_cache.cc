// Invariant: no prefix in the cache is the beginning of another one with the same key.
#include "src/server/engine/prefix_cache.h"
#include "ebb/generate.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "ebb/setting_fields.h"

namespace ebb::server {
namespace {

// A shorter prefix is not worth sharing: reading it takes no longer.
constexpr size_t kLeastTokens = 8;
// Limits the number of prefixes, since Find() compares each of them with the prompt.
constexpr size_t kMostPrefixes = 256;

bool BeginsWith(std::span<const Token> tokens, std::span<const Token> beginning) {
  return beginning.size() <= tokens.size() &&
         std::equal(beginning.begin(), beginning.end(), tokens.begin());
}

uint64_t BytesOf(const Session& session) {
  const CacheAccounting rows = session.accounting();
  uint64_t bytes = rows.table_bytes + rows.state_bytes + session.tokens().size_bytes();
  for (const TierAccounting& tier : rows.tiers) bytes += tier.fair_page_bytes;
  return bytes;
}

}  // namespace

// The length in front marks where the salt ends, so that no salt can imitate another salt followed
// by settings.
std::string PrefixKey(std::string_view salt, const SessionOptions& session) {
  return fmt::format("{}:{}|{}", salt.size(), salt, SettingKey(session));
}

PrefixSource BetterSource(PrefixSource best, Session* session, std::span<const Token> prompt) {
  const size_t num_tokens = ExactPrefix(*session, prompt);
  const bool is_better = num_tokens >= kLeastTokens && num_tokens > best.num_tokens;
  return is_better ? PrefixSource{session, num_tokens} : best;
}

PrefixSource PrefixCache::Find(std::string_view key, std::span<const Token> prompt) {
  PrefixSource best;
  auto used = prefixes_.end();
  for (auto prefix = prefixes_.begin(); prefix != prefixes_.end(); ++prefix) {
    if (prefix->key != key) continue;
    const PrefixSource better = BetterSource(best, prefix->session.get(), prompt);
    if (better.session == best.session) continue;
    best = better;
    used = prefix;
  }
  if (used == prefixes_.end()) return best;
  prefixes_.splice(prefixes_.begin(), prefixes_, used);
  bytes_.reset();
  return best;
}

// Removes the cached prefixes with which `prefix` begins. If a cached prefix itself begins with
// `prefix`, marks that one as used and returns false.
bool PrefixCache::MakePlaceFor(const Prefix& prefix) {
  const std::span<const Token> tokens = prefix.session->tokens();
  for (auto other = prefixes_.begin(); other != prefixes_.end(); ++other) {
    if (other->key != prefix.key || !BeginsWith(other->session->tokens(), tokens)) continue;
    prefixes_.splice(prefixes_.begin(), prefixes_, other);
    return false;
  }
  std::erase_if(prefixes_, [&](const Prefix& other) {
    return other.key == prefix.key && BeginsWith(tokens, other.session->tokens());
  });
  return true;
}

void PrefixCache::Keep(std::string key, size_t num_tokens, std::unique_ptr<Session> session,
                       std::optional<double> unstored_since) {
  if (!is_on() || num_tokens > session->tokens().size()) return;
  Prefix prefix = {
      .key = std::move(key), .session = std::move(session), .unstored_since = unstored_since};
  Session& kept = *prefix.session;
  if (!kept.SetT0Floor(0).ok() || !kept.TruncateTo(static_cast<Position>(num_tokens)).ok()) return;
  // Makes a prompt that is two tokens longer. For a prompt that equals the kept tokens, the last
  // token could not be shared, and recurrent state cannot be rolled back by one token.
  std::vector<Token> longer(kept.tokens().begin(), kept.tokens().end());
  longer.resize(longer.size() + 2);
  if (ExactPrefix(kept, longer) < kLeastTokens || !MakePlaceFor(prefix)) return;
  prefixes_.push_front(std::move(prefix));
  bytes_.reset();
  while (prefixes_.size() > kMostPrefixes || bytes() > most_bytes_) {
    Drop(std::prev(prefixes_.end()));
  }
}

std::optional<PrefixCache::Unstored> PrefixCache::NextUnstored() const {
  std::optional<Unstored> next;
  for (const Prefix& prefix : prefixes_) {
    const std::optional<double>& since = prefix.unstored_since;
    if (!since.has_value() || (next.has_value() && next->since <= *since)) continue;
    next = Unstored{.key = prefix.key, .session = prefix.session.get(), .since = *since};
  }
  return next;
}

void PrefixCache::SetStored(const Session* session) {
  for (Prefix& prefix : prefixes_) {
    if (prefix.session.get() == session) prefix.unstored_since.reset();
  }
}

void PrefixCache::Drop(std::list<Prefix>::iterator prefix) {
  prefixes_.erase(prefix);
  bytes_.reset();
}

// Skips prefixes whose T0 pages are all shared, because evicting such a prefix frees no page.
PrefixCache::Evicted PrefixCache::EvictOne() {
  for (auto prefix = prefixes_.end(); prefix != prefixes_.begin();) {
    --prefix;
    const TierAccounting t0 = prefix->session->accounting().tiers[static_cast<size_t>(Tier::kT0)];
    if (t0.page_bytes == t0.shared_page_bytes) continue;
    bytes_.reset();
    if (prefix->session->Park().ok()) return Evicted::kDemotedToT1;
    Drop(prefix);
    return Evicted::kDropped;
  }
  if (prefixes_.empty()) return Evicted::kNothing;
  Drop(std::prev(prefixes_.end()));
  return Evicted::kDropped;
}

uint64_t PrefixCache::bytes() {
  if (!bytes_.has_value()) {
    bytes_ = 0;
    for (const Prefix& prefix : prefixes_) *bytes_ += BytesOf(*prefix.session);
  }
  return *bytes_;
}

}  // namespace ebb::server
