// Implements how a PrefixStore lists, describes, fetches, writes, touches and removes entries.
#include <algorithm>
#include <filesystem>
#include <set>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "src/server/engine/prefix_store_impl.h"

namespace ebb::server {
namespace {

using store::Held;
using store::Lease;
using store::Manifest;
using store::NowMs;
using store::StoredSession;

constexpr double kListEvery = 1;       // seconds until the index is refreshed
constexpr double kAskAgainEvery = 60;  // seconds until a missing id is looked up again
// kMostLoadedForOne limits how much longer than the needed prefix an entry may be, because an entry
// is loaded as a whole.
constexpr size_t kMostLoadedForOne = 16;

void RemoveQuietly(const std::string& file) {
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
}

}  // namespace

std::optional<PrefixStore::Impl::Best> PrefixStore::Impl::BestOf(const StoredPrefix& wanted,
                                                                 std::span<const Token> prompt,
                                                                 uint64_t most_bytes) const {
  std::optional<Best> best;
  for (const auto& [id, entry] : index) {
    if (entry.bytes > most_bytes) continue;
    const size_t common = CommonTokens(entry.prefix, wanted, prompt);
    if (common == 0 || common * kMostLoadedForOne < entry.prefix.num_tokens) continue;
    const bool is_better = !best.has_value() || common > best->num_tokens ||
                           (common == best->num_tokens && entry.bytes < best->bytes);
    if (is_better) best = Best{id, common, entry.bytes};
  }
  return best;
}

uint64_t PrefixStore::Impl::TotalBytes() const {
  uint64_t bytes = 0;
  for (const auto& [id, entry] : index) bytes += entry.bytes;
  return bytes;
}

void PrefixStore::Impl::Fail(const Status& status) {
  if (status.ok()) return;
  const MutexLock lock(mutex);
  ++counted.failures;
  backed_off_until =
      Clock::now() + std::chrono::duration_cast<Clock::duration>(InSeconds(options.back_off));
}

Result<std::optional<Manifest>> PrefixStore::Impl::Describe(const std::string& id) {
  const Result<std::optional<StoredSession>> stored = store->Describe({kTenant, id});
  Status status = stored.status();
  StoredPrefix prefix;
  if (stored.ok() && stored->has_value()) {
    Result<StoredPrefix> decoded = DecodeStoredPrefix((*stored)->record);
    status = decoded.status();
    if (decoded.ok()) prefix = *std::move(decoded);
    if (decoded.ok() && StoredPrefixId(prefix) != id) status = Corrupt("a record of another entry");
  }
  if (status.code() == StatusCode::kCorrupt) {
    Remove(id, Removal::kDamaged);
    return std::optional<Manifest>();
  }
  // Entries of another version belong to servers of that version, so they are ignored and not
  // removed.
  const bool is_foreign = status.code() == StatusCode::kUnsupported;
  if (!status.ok() && !is_foreign) return status;
  const MutexLock lock(mutex);
  if (is_foreign || !stored->has_value()) {
    index.erase(id);
    absent[id] = Clock::now();
    return std::optional<Manifest>();
  }
  const Manifest& manifest = (*stored)->manifest;
  absent.erase(id);
  IndexedPrefix& entry = index[id];
  entry.prefix = std::move(prefix);
  entry.bytes = manifest.bytes;
  entry.used_ms = manifest.used_ms;
  return std::optional(manifest);
}

Status PrefixStore::Impl::Refresh(bool now) {
  {
    const MutexLock lock(mutex);
    const bool is_fresh = listed.has_value() && Clock::now() - *listed < InSeconds(kListEvery);
    if (is_fresh && !now) return OkStatus();
  }
  EBB_ASSIGN_OR_RETURN(const std::vector<std::string> ids, store->ListIds(kTenant));
  std::vector<std::string> unknown;
  {
    const MutexLock lock(mutex);
    const std::set<std::string> there(ids.begin(), ids.end());
    std::erase_if(index, [&](const auto& entry) { return !there.contains(entry.first); });
    std::erase_if(absent, [&](const auto& entry) {
      return !there.contains(entry.first) ||
             Clock::now() - entry.second >= InSeconds(kAskAgainEvery);
    });
    for (const std::string& id : ids) {
      if (!index.contains(id) && !absent.contains(id)) unknown.push_back(id);
    }
    listed = Clock::now();
  }
  for (const std::string& id : unknown) EBB_RETURN_IF_ERROR(Describe(id).status());
  return OkStatus();
}

void PrefixStore::Impl::Look(const StoredPrefix& wanted, const std::vector<Token>& prompt,
                             size_t least, uint64_t most_bytes, const Found& then) {
  std::optional<FetchedPrefix> fetched;
  if (const Status status = Refresh(/*now=*/false); !status.ok()) {
    Fail(status);
  } else {
    std::optional<Best> best;
    {
      const MutexLock lock(mutex);
      best = BestOf(wanted, prompt, most_bytes);
    }
    if (best.has_value() && best->num_tokens >= least) fetched = Fetch(best->id);
    const MutexLock lock(mutex);
    ++(fetched.has_value() ? counted.hits : counted.misses);
    if (fetched.has_value()) counted.tokens += best->num_tokens;
  }
  {
    const MutexLock lock(mutex);
    --num_lookups;
  }
  then(std::move(fetched));
}

std::optional<FetchedPrefix> PrefixStore::Impl::Fetch(const std::string& id) {
  const auto manifest = Describe(id);
  if (!manifest.ok()) Fail(manifest.status());
  if (!manifest.ok() || !manifest->has_value()) return std::nullopt;
  FetchedPrefix fetched = {.id = id, .prefix = {}, .file = {}};
  {
    const MutexLock lock(mutex);
    const auto entry = index.find(id);
    if (entry == index.end()) return std::nullopt;
    fetched.prefix = entry->second.prefix;
  }
  fetched.file = NewScratchPath(scratch.path(), "fetched-prompt");
  const Status status = store->Get(**manifest, fetched.file);
  if (status.ok()) {
    const MutexLock lock(mutex);
    counted.fetched_bytes += (*manifest)->bytes;
    backed_off_until = {};
    return fetched;
  }
  RemoveQuietly(fetched.file);
  status.code() == StatusCode::kCorrupt ? DropDamaged(id) : Fail(status);
  return std::nullopt;
}

// Removes the entry from the index at once, so that the prompt may be stored again, and from the
// store in the background.
void PrefixStore::Impl::DropDamaged(const std::string& id) {
  {
    const MutexLock lock(mutex);
    index.erase(id);
  }
  boost::asio::post(writing, [this, id] { Remove(id, Removal::kDamaged); });
}

void PrefixStore::Impl::Remove(const std::string& id, Removal why) {
  const auto lease = store->Acquire({kTenant, id});
  // If another server has the entry's lease, it is writing or removing the entry.
  if (!lease.ok() || !lease->has_value()) return Fail(lease.status());
  const Result<Held> removed = store->Delete(**lease);
  static_cast<void>(store->Release(**lease));
  if (!removed.ok()) return Fail(removed.status());
  const MutexLock lock(mutex);
  index.erase(id);
  if (why == Removal::kForRoom) ++counted.dropped_for_room;
  if (why == Removal::kDamaged) ++counted.dropped_damaged;
}

Result<bool> PrefixStore::Impl::MakeRoom(uint64_t bytes, uint64_t most) {
  if (bytes > most) return false;
  EBB_RETURN_IF_ERROR(Refresh(/*now=*/true));
  std::vector<std::pair<int64_t, std::string>> by_use;
  {
    const MutexLock lock(mutex);
    if (TotalBytes() + bytes <= most) return true;
    for (const auto& [id, entry] : index) by_use.emplace_back(0, id);
  }
  // Other servers may have used entries since they were described, so their times of use are read
  // again.
  for (const auto& [unused, id] : by_use) EBB_RETURN_IF_ERROR(Describe(id).status());
  {
    const MutexLock lock(mutex);
    for (auto& [used_ms, id] : by_use) {
      const auto entry = index.find(id);
      if (entry == index.end()) continue;
      used_ms = std::max(entry->second.used_ms, entry->second.used_here_ms);
    }
  }
  std::ranges::sort(by_use);
  for (const auto& [unused, id] : by_use) {
    {
      const MutexLock lock(mutex);
      if (TotalBytes() + bytes <= most) return true;
    }
    Remove(id, Removal::kForRoom);
  }
  const MutexLock lock(mutex);
  return TotalBytes() + bytes <= most;
}

void PrefixStore::Impl::Write(const StoredPrefix& prefix, const std::string& file) {
  bool may_write = true;
  {
    const MutexLock lock(mutex);
    may_write = !is_stopping && !IsBackedOff();
  }
  const std::string id = StoredPrefixId(prefix);
  if (may_write) {
    const auto lease = store->Acquire({kTenant, id});
    Status status = lease.status();
    // If another server has the entry's lease, it is writing the same entry.
    if (lease.ok() && lease->has_value()) {
      status = WriteUnder(**lease, prefix, file);
      const Status released = store->Release(**lease);
      if (status.ok()) status = released;
    }
    Fail(status);
  }
  RemoveQuietly(file);
  EndWrite();
}

void PrefixStore::Impl::EndWrite() {
  const MutexLock lock(mutex);
  --num_writes;
  changed.NotifyAll();
}

Status PrefixStore::Impl::WriteUnder(const Lease& lease, const StoredPrefix& prefix,
                                     const std::string& file) {
  const std::string& id = lease.name.id;
  EBB_ASSIGN_OR_RETURN(const auto there, Describe(id));
  if (there.has_value()) return OkStatus();
  std::error_code error;
  const uint64_t bytes = std::filesystem::file_size(file, error);
  if (error) return IoError(fmt::format("a prompt's file: {}", error.message()));
  EBB_ASSIGN_OR_RETURN(const bool has_room, MakeRoom(bytes, options.most_bytes));
  if (!has_room) return OkStatus();
  Manifest manifest;
  manifest.model = model;
  manifest.tokens = prefix.num_tokens;
  manifest.created_ms = manifest.used_ms = NowMs();
  manifest.expires_ms = manifest.used_ms + static_cast<int64_t>(options.lifetime * 1000);
  const std::string record = EncodeStoredPrefix(prefix);
  Result<Held> held = store->Put(lease, file, record, &manifest);
  if (held.status().code() == StatusCode::kStorageFull) {
    // The store is full although the entries take less than `most_bytes`, since it holds sessions
    // too. Old entries are removed to make room, and the write is tried once more.
    uint64_t total = 0;
    {
      const MutexLock lock(mutex);
      total = TotalBytes();
    }
    EBB_ASSIGN_OR_RETURN(const bool has_less, MakeRoom(std::min(bytes, total), total));
    if (has_less && total > 0) held = store->Put(lease, file, record, &manifest);
  }
  if (!held.ok()) return held.status();
  if (*held == Held::kNo) return OkStatus();
  {
    const MutexLock lock(mutex);
    ++counted.written;
    counted.written_bytes += bytes;
    absent.erase(id);
    index[id] = {.prefix = prefix, .bytes = manifest.bytes, .used_ms = manifest.used_ms};
  }
  RemoveBeginningsOf(prefix, id);
  return OkStatus();
}

// Removes entries that are prefixes of the longer entry `id`, which serves their prompts too. The
// last tokens of such an entry, fewer than kPrefixBlockTokens, are not compared, and are lost if
// they differ.
void PrefixStore::Impl::RemoveBeginningsOf(const StoredPrefix& prefix, const std::string& id) {
  std::vector<std::string> covered;
  {
    const MutexLock lock(mutex);
    for (const auto& [other_id, entry] : index) {
      const StoredPrefix& other = entry.prefix;
      const size_t num_whole = other.num_tokens / kPrefixBlockTokens;
      const bool is_shorter = other_id != id && other.owner == prefix.owner && num_whole > 0 &&
                              other.num_tokens < prefix.num_tokens &&
                              num_whole <= prefix.hashes.size();
      const bool is_near = other.num_tokens * kMostLoadedForOne >= prefix.num_tokens;
      if (is_shorter && is_near && prefix.hashes[num_whole - 1] == other.hashes[num_whole - 1]) {
        covered.push_back(other_id);
      }
    }
  }
  for (const std::string& other_id : covered) Remove(other_id, Removal::kReplaced);
}

void PrefixStore::Impl::Touch() {
  std::vector<std::pair<std::string, int64_t>> used;
  {
    const MutexLock lock(mutex);
    if (is_stopping || IsBackedOff()) return;
    for (const auto& [id, entry] : index) {
      if (entry.used_here_ms >= entry.used_ms + kTouchEveryMs) {
        used.emplace_back(id, entry.used_here_ms);
      }
    }
  }
  for (const auto& [id, used_ms] : used) {
    const auto lease = store->Acquire({kTenant, id});
    if (!lease.ok()) return Fail(lease.status());
    if (!lease->has_value()) continue;
    const int64_t expires_ms = used_ms + static_cast<int64_t>(options.lifetime * 1000);
    const Result<Held> touched = store->Touch(**lease, used_ms, expires_ms);
    static_cast<void>(store->Release(**lease));
    const bool is_gone = touched.status().code() == StatusCode::kNotFound;
    if (!touched.ok() && !is_gone) return Fail(touched.status());
    const MutexLock lock(mutex);
    const auto entry = index.find(id);
    if (entry != index.end()) entry->second.used_ms = used_ms;
    if (is_gone) index.erase(id);
  }
}

}  // namespace ebb::server
