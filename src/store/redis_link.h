// RedisLink is one connection to Redis or Valkey: it sends commands and receives replies, both
// within time limits.
#ifndef EBB_STORE_REDIS_LINK_H_
#define EBB_STORE_REDIS_LINK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/status.h"
#include "src/store/session_store.h"
#include "src/store/store_url.h"

struct redisContext;

namespace ebb::store {

struct RedisReply {
  enum class Kind { kNil, kText, kNumber, kList };
  Kind kind = Kind::kNil;
  std::string text;  // set if kText
  int64_t number = 0;
  std::vector<RedisReply> list;
};

// RedisLink sends commands to a server. After an error of the connection it must not be used any
// more. Thread safety: one thread at a time.
class RedisLink {
 public:
  // Connects to the server and logs in. Errors: Io.
  static Result<std::unique_ptr<RedisLink>> Connect(const StoreUrl& url, const StoreLimits& limits);
  ~RedisLink();
  RedisLink(const RedisLink&) = delete;
  RedisLink& operator=(const RedisLink&) = delete;

  // Runs a command and returns its reply. Errors: Io; StorageFull (the server's memory is full).
  [[nodiscard]] Result<RedisReply> Do(const std::vector<std::string_view>& words);
  // Sends a command without waiting for its reply. Receive() returns the replies in the order of
  // the commands.
  [[nodiscard]] Status Send(const std::vector<std::string_view>& words);
  [[nodiscard]] Result<RedisReply> Receive();
  [[nodiscard]] bool is_broken() const;

 private:
  explicit RedisLink(redisContext* context) : context_(context) {}
  [[nodiscard]] Status Broken() const;
  [[nodiscard]] Status Login(const StoreUrl& url);

  redisContext* const context_;
};

}  // namespace ebb::store

#endif  // EBB_STORE_REDIS_LINK_H_
