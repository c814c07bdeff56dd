// Gate decides which requests a server accepts: by API keys, their limits, and the origins of web
// pages. It sees only the headers of requests. It also makes the headers that every answer has.
//
// Thread safety: SetKeys() and all members of a Ticket, including its destructor, may be called
// from any thread; all other members must be called on the thread of connections.
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
#include "src/server/api/base/api_error.h"
#include "src/server/engine/fair_shares.h"
#include "src/server/http/http_server.h"

namespace ebb::server {

// Access is the kind of key that a route needs on a server with keys. Without keys, every request
// may use every route.
enum class Access { kOpen, kKey, kAdmin };

using Headers = std::vector<std::pair<std::string, std::string>>;

class Gate {
 public:
  // Makes a gate without keys. `cors_origins`: origins from which web pages may send requests, as
  // browsers write them. "localhost" allows origins of this machine at any port, "*" all origins.
  // `run_id`: a number of this run of the server, so that request ids differ from run to run.
  // `hosts`: while the server has no keys, a request's Host must be localhost, an address or one of
  // these names; nullopt allows any name. Without this check, a web page could direct its own name
  // to this server by DNS (DNS rebinding), and browsers would treat both as the same origin.
  Gate(std::vector<std::string> cors_origins, uint64_t run_id,
       std::optional<std::vector<std::string>> hosts = std::nullopt)
      : cors_origins_(std::move(cors_origins)), run_id_(run_id), hosts_(std::move(hosts)) {}

  // Replaces the keys; null: the server needs no keys. Keys that keep their name keep their usage.
  void SetKeys(std::shared_ptr<const KeyRing> keys);

  // Finds the request's key and sets HttpRequest::key. Returns an error if the request must be
  // refused: 401 (no key or an unknown one); 403 (the key is no admin's; or, on a server without
  // keys, the request comes from a page of another origin or is sent to another host).
  [[nodiscard]] std::optional<ApiError> Admit(Access access, HttpRequest* request);
  // Returns the answer if `request` is a CORS preflight request; else nullopt.
  [[nodiscard]] std::optional<HttpAnswer> Preflight(const HttpRequest& request) const;
  // Returns the headers for the answer to `request`: its id, and the origin whose pages may read
  // the answer.
  [[nodiscard]] Headers HeadersFor(const HttpRequest& request);
  // Returns a Reply that adds `headers` to each answer, and sends it by `reply`. A header that the
  // answer already has, such as X-Request-Id, is not replaced.
  [[nodiscard]] static std::shared_ptr<Reply> WithHeaders(std::shared_ptr<Reply> reply,
                                                          Headers headers);

  // Ticket counts a request of a key as running until it is destroyed.
  class Ticket {
   public:
    ~Ticket();
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    [[nodiscard]] const std::shared_ptr<const ApiKey>& key() const { return key_; }
    [[nodiscard]] OwnerId owner() const { return owner_; }
    // Returns the priority of a request that asks for priority `wanted`, or for none. Errors: 403
    // (the key does not allow `wanted`).
    [[nodiscard]] ApiResult<int> PriorityFor(std::optional<int> wanted) const;
    void Charge(uint64_t tokens);

   private:
    friend class Gate;
    Ticket(Gate* gate, std::shared_ptr<const ApiKey> key, OwnerId owner)
        : gate_(gate), key_(std::move(key)), owner_(owner) {}
    Gate* const gate_;
    const std::shared_ptr<const ApiKey> key_;  // null: the server has no keys
    const OwnerId owner_;
  };
  // Counts `request` as running and returns its ticket. Errors: 429 with Retry-After (a limit of
  // the key is reached). REQUIRES: the gate outlives the ticket.
  [[nodiscard]] ApiResult<std::shared_ptr<Ticket>> Enter(const HttpRequest& request);
  // Returns the X-RateLimit headers of the request's key.
  [[nodiscard]] Headers LimitHeaders(const HttpRequest& request) const;

  // Returns whether the sender of `request` may see and end the request with `ticket`: always
  // without keys or with an admin's key, else only with the same key.
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
  // Holds the usage of each key, by the key's name.
  std::map<std::string, Account, std::less<>> accounts_ EBB_GUARDED_BY(mutex_);
  uint64_t next_id_ = 1;
};

// Returns whether a client may choose `text` as the id of its request: 1 to 128 letters, digits,
// '.', '_', ':' and '-'.
[[nodiscard]] bool IsRequestId(std::string_view text);

}  // namespace ebb::server

#endif  // EBB_SERVER_ACCESS_GATE_H_
