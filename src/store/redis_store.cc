// Invariants:
// 1. The key `last` has the epoch of the newest lease. A client that finds another epoch there than
//    its own changes nothing; the scripts below compare and change atomically.
// 2. A committed chunk lives as long as its manifest; an uncommitted chunk expires.
#include "src/store/redis_store.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "src/base/threads/mutex.h"
#include "src/store/chunks.h"
#include "src/store/names.h"
#include "src/store/percent_encoding.h"
#include "src/store/redis_link.h"

namespace ebb::store {
namespace {

constexpr std::string_view kEpochKey = "ebb:epoch";
// kLastMs is how long, in milliseconds, the store knows who held a lease last.
constexpr std::string_view kLastMs = "86400000";

// Acquires a lease. KEYS: lease, last, counter; ARGV: a random number, ms of the lease, ms of
// `last`.
constexpr std::string_view kAcquire = R"lua(
if redis.call('EXISTS', KEYS[1]) == 1 then return false end
local epoch = redis.call('INCR', KEYS[3]) .. '-' .. ARGV[1]
redis.call('SET', KEYS[1], epoch, 'NX', 'PX', ARGV[2])
redis.call('SET', KEYS[2], epoch, 'PX', ARGV[3])
return epoch
)lua";

// Renews a lease. KEYS: lease, last; ARGV: epoch, ms of the lease, ms of `last`.
constexpr std::string_view kRenew = R"lua(
local last = redis.call('GET', KEYS[2])
if last and last ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[3])
return 1
)lua";

// Releases a lease. KEYS: lease; ARGV: epoch.
constexpr std::string_view kRelease = R"lua(
if redis.call('GET', KEYS[1]) == ARGV[1] then redis.call('DEL', KEYS[1]) end
return 1
)lua";

// Replaces the session's generation. KEYS: last, session, ids; ARGV: epoch, manifest, record,
// generation, count, ms to live, base, id.
constexpr std::string_view kCommit = R"lua(
local last = redis.call('GET', KEYS[1])
if last and last ~= ARGV[1] then return 0 end
local base, generation, count = ARGV[7], ARGV[4], tonumber(ARGV[5])
for i = 0, count - 1 do
  if redis.call('EXISTS', base .. generation .. ':' .. i) == 0 then return -1 end
end
local old = redis.call('HMGET', KEYS[2], 'generation', 'count')
redis.call('HSET', KEYS[2], 'manifest', ARGV[2], 'record', ARGV[3], 'generation', generation,
           'count', count)
redis.call('PEXPIRE', KEYS[2], ARGV[6])
for i = 0, count - 1 do redis.call('PEXPIRE', base .. generation .. ':' .. i, ARGV[6]) end
if old[1] and old[1] ~= generation then
  for i = 0, tonumber(old[2]) - 1 do redis.call('UNLINK', base .. old[1] .. ':' .. i) end
end
redis.call('ZADD', KEYS[3], 0, ARGV[8])
return 1
)lua";

// Sets a new manifest with new times. KEYS: last, session; ARGV: epoch, manifest, generation, ms to
// live, base.
constexpr std::string_view kTouch = R"lua(
local last = redis.call('GET', KEYS[1])
if last and last ~= ARGV[1] then return 0 end
local old = redis.call('HMGET', KEYS[2], 'generation', 'count')
if old[1] ~= ARGV[3] then return 0 end
redis.call('HSET', KEYS[2], 'manifest', ARGV[2])
redis.call('PEXPIRE', KEYS[2], ARGV[4])
for i = 0, tonumber(old[2]) - 1 do
  redis.call('PEXPIRE', ARGV[5] .. old[1] .. ':' .. i, ARGV[4])
end
return 1
)lua";

// Deletes a session. KEYS: last, session, ids; ARGV: epoch, base, id.
constexpr std::string_view kDelete = R"lua(
local last = redis.call('GET', KEYS[1])
if last and last ~= ARGV[1] then return 0 end
local old = redis.call('HMGET', KEYS[2], 'generation', 'count')
if old[1] then
  for i = 0, tonumber(old[2]) - 1 do redis.call('UNLINK', ARGV[2] .. old[1] .. ':' .. i) end
end
redis.call('DEL', KEYS[2])
redis.call('ZREM', KEYS[3], ARGV[3])
return 1
)lua";

std::string Ms(double seconds) { return std::to_string(static_cast<int64_t>(seconds * 1000)); }

struct Keys {
  explicit Keys(const SessionName& name)
      : base(fmt::format("ebb:{{{}/{}}}:", PercentEncoded(name.tenant), name.id)),
        lease(base + "lease"),
        last(base + "last"),
        session(base + "session"),
        ids(IdsOf(name.tenant)) {}
  static std::string IdsOf(const std::string& tenant) {
    return fmt::format("ebb:{{{}}}:ids", PercentEncoded(tenant));
  }
  [[nodiscard]] std::string Chunk(const std::string& generation, size_t index) const {
    return fmt::format("{}{}:{}", base, generation, index);
  }

  std::string base, lease, last, session, ids;
};

class RedisStore final : public SessionStore {
 public:
  RedisStore(StoreUrl url, const StoreLimits& limits) : url_(std::move(url)), limits_(limits) {}

  // Checks that the server never evicts sessions. Errors: Io; InvalidArgument (its maxmemory-policy
  // is not noeviction).
  Status Check() {
    return With([](RedisLink& link) -> Status {
      EBB_ASSIGN_OR_RETURN(const RedisReply info, link.Do({"INFO", "memory"}));
      constexpr std::string_view kPolicy = "maxmemory_policy:";
      const size_t found = info.text.find(kPolicy);
      if (found == std::string::npos) return OkStatus();
      const std::string_view rest = std::string_view(info.text).substr(found + kPolicy.size());
      const std::string_view policy = rest.substr(0, rest.find_first_of("\r\n"));
      if (policy == "noeviction") return OkStatus();
      return InvalidArgument(
          fmt::format("the session store would let sessions go when its memory is full: expected "
                      "maxmemory-policy noeviction, found {}",
                      policy));
    });
  }

  Result<std::optional<Lease>> Acquire(const SessionName& name) override {
    EBB_RETURN_IF_ERROR(CheckName(name));
    const Keys keys(name);
    std::optional<Lease> lease;
    EBB_RETURN_IF_ERROR(With([&](RedisLink& link) -> Status {
      EBB_ASSIGN_OR_RETURN(
          const RedisReply reply,
          link.Do({"EVAL", kAcquire, "3", keys.lease, keys.last, kEpochKey,
                   fmt::format("{:016x}", RandomNumber()), Ms(limits_.lease), kLastMs}));
      if (reply.kind == RedisReply::Kind::kText) lease = Lease{name, reply.text};
      return OkStatus();
    }));
    return lease;
  }

  Result<Held> Renew(const Lease& lease) override {
    const Keys keys(lease.name);
    return Number(
        {"EVAL", kRenew, "2", keys.lease, keys.last, lease.epoch, Ms(limits_.lease), kLastMs});
  }

  Status Release(const Lease& lease) override {
    const Keys keys(lease.name);
    return Number({"EVAL", kRelease, "1", keys.lease, lease.epoch}).status();
  }

  Result<std::optional<StoredSession>> Describe(const SessionName& name) override {
    EBB_RETURN_IF_ERROR(CheckName(name));
    const Keys keys(name);
    RedisReply reply;
    EBB_RETURN_IF_ERROR(With([&](RedisLink& link) -> Status {
      EBB_ASSIGN_OR_RETURN(reply, link.Do({"HMGET", keys.session, "manifest", "record"}));
      return OkStatus();
    }));
    if (reply.list.size() != 2 || reply.list[0].kind == RedisReply::Kind::kNil) {
      return std::optional<StoredSession>();
    }
    StoredSession stored;
    EBB_ASSIGN_OR_RETURN(stored.manifest, DecodeManifest(reply.list[0].text));
    stored.record = std::move(reply.list[1].text);
    EBB_RETURN_IF_ERROR(CheckStored(stored, name));
    return std::optional(std::move(stored));
  }

  Status Get(const Manifest& manifest, const std::string& path) override {
    const Keys keys({manifest.tenant, manifest.id});
    const size_t count = manifest.chunk_hashes.size();
    return With([&](RedisLink& link) -> Status {
      size_t asked = 0;
      return WriteChunks(
          {manifest.bytes, manifest.chunk_hashes}, path, [&](size_t index) -> Result<std::string> {
            for (; asked < std::min(count, index + kInFlight); ++asked) {
              EBB_RETURN_IF_ERROR(link.Send({"GET", keys.Chunk(manifest.generation, asked)}));
            }
            EBB_ASSIGN_OR_RETURN(RedisReply reply, link.Receive());
            if (reply.kind == RedisReply::Kind::kText) return std::move(reply.text);
            return Corrupt(fmt::format("chunk {} of {} is missing", index, count));
          });
    });
  }

  Result<Held> Put(const Lease& lease, const std::string& path, std::string_view record,
                   Manifest* manifest) override {
    const SessionName& name = lease.name;
    const Keys keys(name);
    const std::string generation = NewGeneration(lease);
    int64_t outcome = 0;
    EBB_RETURN_IF_ERROR(With([&](RedisLink& link) -> Status {
      EBB_ASSIGN_OR_RETURN(Chunked chunked, PutChunks(path, keys, generation, &link));
      CompleteManifest(lease, generation, std::move(chunked), record, manifest);
      const int64_t live_ms = std::max<int64_t>(1, manifest->expires_ms - NowMs());
      EBB_ASSIGN_OR_RETURN(const RedisReply reply,
                           link.Do({"EVAL", kCommit, "3", keys.last, keys.session, keys.ids,
                                    lease.epoch, EncodeManifest(*manifest), record, generation,
                                    std::to_string(manifest->chunk_hashes.size()),
                                    std::to_string(live_ms), keys.base, name.id}));
      outcome = reply.number;
      return OkStatus();
    }));
    if (outcome < 0) return IoError("the session store has lost chunks that were just written");
    return outcome == 1 ? Held::kYes : Held::kNo;
  }

  Result<Held> Touch(const Lease& lease, int64_t used_ms, int64_t expires_ms) override {
    const Keys keys(lease.name);
    EBB_ASSIGN_OR_RETURN(auto stored, Describe(lease.name));
    if (!stored.has_value()) return NotFound(fmt::format("no session {}", lease.name.id));
    Manifest& manifest = stored->manifest;
    manifest.used_ms = used_ms;
    manifest.expires_ms = expires_ms;
    const int64_t live_ms = std::max<int64_t>(1, expires_ms - NowMs());
    return Number({"EVAL", kTouch, "2", keys.last, keys.session, lease.epoch,
                   EncodeManifest(manifest), manifest.generation, std::to_string(live_ms),
                   keys.base});
  }

  Result<Held> Delete(const Lease& lease) override {
    const Keys keys(lease.name);
    return Number({"EVAL", kDelete, "3", keys.last, keys.session, keys.ids, lease.epoch, keys.base,
                   lease.name.id});
  }

  Result<SessionPage> List(const std::string& tenant, const std::string& after,
                           size_t most) override {
    EBB_RETURN_IF_ERROR(CheckTenant(tenant));
    SessionPage page;
    std::string last = after;
    // Repeat until the page is full, since the ids may include those of expired sessions.
    while (page.sessions.size() < most) {
      EBB_ASSIGN_OR_RETURN(const std::vector<std::string> ids, IdsBehind(tenant, last, most));
      for (const std::string& id : ids) {
        if (page.sessions.size() == most) break;
        last = id;
        auto stored = Describe({tenant, id});
        if (IsDamaged(stored.status())) continue;
        if (!stored.ok()) return stored.status();
        if (stored->has_value()) page.sessions.push_back(std::move((*stored)->manifest));
      }
      if (ids.size() < most) break;
    }
    EBB_ASSIGN_OR_RETURN(const std::vector<std::string> more, IdsBehind(tenant, last, 1));
    if (!more.empty()) page.next = last;
    return page;
  }

  Result<std::vector<std::string>> ListIds(const std::string& tenant) override {
    EBB_RETURN_IF_ERROR(CheckTenant(tenant));
    constexpr size_t kAll = size_t{1} << 30;
    return IdsBehind(tenant, "", kAll);
  }

  Status Sweep() override {
    return With([&](RedisLink& link) -> Status {
      // Sweep only the sets of ids, since all other keys expire by themselves.
      EBB_ASSIGN_OR_RETURN(const RedisReply tenants, link.Do({"KEYS", "ebb:{*}:ids"}));
      for (const RedisReply& ids : tenants.list) EBB_RETURN_IF_ERROR(SweepIds(ids.text, &link));
      return OkStatus();
    });
  }

 private:
  static constexpr size_t kInFlight = 8;  // chunks on their way at once

  // Calls `work` with an idle connection that answers, or with a new one.
  Status With(const std::function<Status(RedisLink&)>& work) {
    EBB_ASSIGN_OR_RETURN(std::unique_ptr<RedisLink> link, Take());
    const Status status = work(*link);
    // Drop the connection after an error, since replies to earlier requests may still arrive on it.
    if (status.ok() && !link->is_broken()) {
      const MutexLock lock(mutex_);
      idle_.push_back(std::move(link));
    }
    return status;
  }

  Result<std::unique_ptr<RedisLink>> Take() {
    while (true) {
      std::unique_ptr<RedisLink> link;
      {
        const MutexLock lock(mutex_);
        if (idle_.empty()) break;
        link = std::move(idle_.back());
        idle_.pop_back();
      }
      // Skip connections that the server has closed, for example by a restart.
      if (link->Do({"PING"}).ok()) return link;
    }
    return RedisLink::Connect(url_, limits_);
  }

  Result<Held> Number(const std::vector<std::string_view>& words) {
    Held held = Held::kNo;
    EBB_RETURN_IF_ERROR(With([&](RedisLink& link) -> Status {
      EBB_ASSIGN_OR_RETURN(const RedisReply reply, link.Do(words));
      if (reply.number == 1) held = Held::kYes;
      return OkStatus();
    }));
    return held;
  }

  Result<Chunked> PutChunks(const std::string& path, const Keys& keys,
                            const std::string& generation, RedisLink* link) {
    size_t sent = 0, answered = 0;
    const auto receive = [&]() -> Status {
      ++answered;
      return link->Receive().status();
    };
    EBB_ASSIGN_OR_RETURN(Chunked chunked, ReadChunks(path, [&](std::string_view chunk) -> Status {
                           EBB_RETURN_IF_ERROR(link->Send({"SET", keys.Chunk(generation, sent++),
                                                           chunk, "PX", Ms(limits_.orphan)}));
                           return sent - answered < kInFlight ? OkStatus() : receive();
                         }));
    while (answered < sent) EBB_RETURN_IF_ERROR(receive());
    return chunked;
  }

  Result<std::vector<std::string>> IdsBehind(const std::string& tenant, const std::string& after,
                                             size_t most) {
    std::vector<std::string> ids;
    EBB_RETURN_IF_ERROR(With([&](RedisLink& link) -> Status {
      EBB_ASSIGN_OR_RETURN(const RedisReply reply, link.Do({"ZRANGEBYLEX", Keys::IdsOf(tenant),
                                                            after.empty() ? "-" : "(" + after, "+",
                                                            "LIMIT", "0", std::to_string(most)}));
      for (const RedisReply& id : reply.list) ids.push_back(id.text);
      return OkStatus();
    }));
    return ids;
  }

  // Removes the ids of sessions that do not exist any more from a tenant's set.
  static Status SweepIds(const std::string& key, RedisLink* link) {
    constexpr std::string_view kScript = R"lua(
local gone = 0
for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
  if redis.call('EXISTS', ARGV[1] .. id .. '}:session') == 0 then
    gone = gone + redis.call('ZREM', KEYS[1], id)
  end
end
return gone
)lua";
    // `key` is "ebb:{TENANT}:ids".
    const std::string base = key.substr(0, key.rfind('}')) + "/";
    return link->Do({"EVAL", kScript, "1", key, base}).status();
  }

  const StoreUrl url_;
  const StoreLimits limits_;
  Mutex mutex_;
  std::vector<std::unique_ptr<RedisLink>> idle_ EBB_GUARDED_BY(mutex_);
};

}  // namespace

Result<std::unique_ptr<SessionStore>> CreateRedisStore(const StoreUrl& url,
                                                       const StoreLimits& limits) {
  auto store = std::make_unique<RedisStore>(url, limits);
  // The error has the address, since only the operator reads it.
  if (const Status status = store->Check(); !status.ok()) {
    const std::string place =
        url.socket.empty() ? fmt::format("{}:{}", url.host, url.port) : url.socket;
    return status.WithPrefix(place);
  }
  return std::unique_ptr<SessionStore>(std::move(store));
}

}  // namespace ebb::store
