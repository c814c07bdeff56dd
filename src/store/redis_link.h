// One connection to Redis or Valkey: commands in, replies out, within limits of time.
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
  std::string text;  // of kText
  int64_t number = 0;
  std::vector<RedisReply> list;
};

// Thread safety: one thread at a time. After an error of the connection it is of no use any more.
class RedisLink {
 public:
  // Errors: Io.
  static Result<std::unique_ptr<RedisLink>> Connect(const StoreUrl& url, const StoreLimits& limits);
  ~RedisLink();
  RedisLink(const RedisLink&) = delete;
  RedisLink& operator=(const RedisLink&) = delete;

  // Errors: Io; StorageFull (the server's memory is full).
  [[nodiscard]] Result<RedisReply> Do(const std::vector<std::string_view>& words);
  // A command whose reply is asked for later: Send() and Receive() in the same order.
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
