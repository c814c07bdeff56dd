// Who may ask for what: keys, their limits, and pages of other origins. Knows requests by their
// headers alone, and adds the headers that every answer has.
//
// Thread safety: SetKeys() and all that a Ticket does, its end too, may happen on any thread; all
// else belongs to the thread of connections.
#ifndef EBB_SERVER_ACCESS_GATE_H_
#define EBB_SERVER_ACCESS_GATE_H_

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/base/threads/mutex.h"
#include "src/server/access/api_keys.h"
#include "src/server/access/key_usage.h"
#include "src/server/api/api_error.h"
#include "src/server/engine/fair_shares.h"
#include "src/server/http/http_server.h"

namespace ebb::server {

// The access that a route needs on a server with keys. Without keys every request may use every
// route.
enum class Access { kOpen, kKey, kAdmin };

using Headers = std::vector<std::pair<std::string, std::string>>;

class Gate {
 public:
  // cors_origins: origins whose pages may ask, as browsers write them; "localhost": origins of this
  // machine at any port; "*": all; empty: none.
  // run_id: so that ids of requests differ from run to run.
  // hosts: by what names, beside localhost and addresses, the server may be called as long as it
  // asks for no keys; nothing: by any. A page could make a name of its own lead here, and would be
  // of the same origin then.
  Gate(std::vector<std::string> cors_origins, uint64_t run_id,
       std::optional<std::vector<std::string>> hosts = std::nullopt)
      : cors_origins_(std::move(cors_origins)), run_id_(run_id), hosts_(std::move(hosts)) {}

  // From now on these; null: none are asked for. Uses of keys of the same name go on.
  void SetKeys(std::shared_ptr<const KeyRing> keys);

  // Finds out whose a request is. Errors: 401 (no key, an unknown one); 403 (no admin's; of a page
  // of another origin, or to another host, on a server without keys).
  [[nodiscard]] std::optional<ApiError> Admit(Access access, HttpRequest* request);
  // The answer to a browser that asks whether a page may ask; nothing: `request` is another one.
  [[nodiscard]] std::optional<HttpAnswer> Preflight(const HttpRequest& request) const;
  // The headers of every answer to `request`: an id, and the origin whose pages may read it.
  [[nodiscard]] Headers HeadersFor(const HttpRequest& request);
  // `reply`, whose answer gets `headers` in addition to its own; its own X-Request-Id counts.
  [[nodiscard]] static std::shared_ptr<Reply> WithHeaders(std::shared_ptr<Reply> reply,
                                                          Headers headers);

  // A request of a key that is counted as running as long as this lives.
  class Ticket {
   public:
    ~Ticket();
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    [[nodiscard]] const std::shared_ptr<const ApiKey>& key() const { return key_; }
    [[nodiscard]] OwnerId owner() const { return owner_; }
    // The priority of a request that asks for `wanted`, or for none. Errors: 403, it may not have
    // it.
    [[nodiscard]] ApiResult<int> PriorityFor(std::optional<int> wanted) const;
    void Charge(uint64_t tokens);

   private:
    friend class Gate;
    Ticket(Gate* gate, std::shared_ptr<const ApiKey> key, OwnerId owner)
        : gate_(gate), key_(std::move(key)), owner_(owner) {}
    Gate* const gate_;
    const std::shared_ptr<const ApiKey> key_;  // null: there are no keys
    const OwnerId owner_;
  };
  // Counts a request in. Errors: 429, with a time to come back. The gate outlives tickets.
  [[nodiscard]] ApiResult<std::shared_ptr<Ticket>> Enter(const HttpRequest& request);
  // The headers with the rest of its key's limits.
  [[nodiscard]] Headers LimitHeaders(const HttpRequest& request) const;

  // Whether who sent `request` may see and end what `owner`'s ticket stands for.
  [[nodiscard]] bool MaySee(const HttpRequest& request, const Ticket& ticket) const;

 private:
  struct Account {
    OwnerId owner = 0;
    KeyUsage usage;
  };
  [[nodiscard]] std::shared_ptr<const KeyRing> keys() const;
  [[nodiscard]] Account& AccountOf(const ApiKey& key) EBB_REQUIRES(mutex_);
  [[nodiscard]] bool IsAllowedOrigin(std::string_view origin) const;
  [[nodiscard]] std::optional<ApiError> CheckPage(const HttpRequest& request) const;
  [[nodiscard]] double Now() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - origin_).count();
  }

  const std::vector<std::string> cors_origins_;
  const uint64_t run_id_;
  const std::optional<std::vector<std::string>> hosts_;
  const std::chrono::steady_clock::time_point origin_ = std::chrono::steady_clock::now();
  mutable Mutex mutex_;
  std::shared_ptr<const KeyRing> keys_ EBB_GUARDED_BY(mutex_);
  // By the names of keys.
  std::map<std::string, Account, std::less<>> accounts_ EBB_GUARDED_BY(mutex_);
  uint64_t next_id_ = 1;
};

// Returns whether a client may name its request so: 1 to 128 letters, digits, '.', '_', ':' and
// '-'.
[[nodiscard]] bool IsRequestId(std::string_view text);

}  // namespace ebb::server

#endif  // EBB_SERVER_ACCESS_GATE_H_
