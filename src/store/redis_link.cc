#include "src/store/redis_link.h"

#include <hiredis/hiredis.h>
#include <sys/time.h>

#include <cmath>

#include <fmt/format.h>

namespace ebb::store {
namespace {

timeval TimeOf(double seconds) {
  timeval time = {};
  time.tv_sec = static_cast<time_t>(seconds);
  time.tv_usec = static_cast<suseconds_t>((seconds - std::floor(seconds)) * 1e6);
  return time;
}

struct FreeReply {
  void operator()(redisReply* reply) const { freeReplyObject(reply); }
};

RedisReply Converted(const redisReply& reply) {
  RedisReply converted;
  switch (reply.type) {
    case REDIS_REPLY_STRING:
    case REDIS_REPLY_STATUS:
      converted.kind = RedisReply::Kind::kText;
      converted.text.assign(reply.str, reply.len);
      break;
    case REDIS_REPLY_INTEGER:
      converted.kind = RedisReply::Kind::kNumber;
      converted.number = reply.integer;
      break;
    case REDIS_REPLY_ARRAY:
      converted.kind = RedisReply::Kind::kList;
      for (size_t i = 0; i < reply.elements; ++i) {
        converted.list.push_back(Converted(*reply.element[i]));
      }
      break;
    default:
      break;
  }
  return converted;
}

Status ErrorOf(std::string_view message) {
  const std::string text = fmt::format("the session store refuses: {}", message);
  // In an error of a script, "OOM" is not the first word, so that the whole message is searched.
  const bool is_full = message.find("OOM") != std::string_view::npos ||
                       message.starts_with("MISCONF");  // the server cannot save to its disk
  return is_full ? StorageFull(text) : IoError(text);
}

}  // namespace

Result<std::unique_ptr<RedisLink>> RedisLink::Connect(const StoreUrl& url,
                                                      const StoreLimits& limits) {
  const timeval connect = TimeOf(limits.connect);
  redisContext* const context = url.socket.empty()
                                    ? redisConnectWithTimeout(url.host.c_str(), url.port, connect)
                                    : redisConnectUnixWithTimeout(url.socket.c_str(), connect);
  if (context == nullptr) return IoError("cannot reach the session store: no memory");
  std::unique_ptr<RedisLink> link(new RedisLink(context));
  if (context->err != 0) {
    return IoError(fmt::format("cannot reach the session store: {}", context->errstr));
  }
  if (redisSetTimeout(context, TimeOf(limits.operation)) != REDIS_OK) return link->Broken();
  EBB_RETURN_IF_ERROR(link->Login(url));
  return link;
}

RedisLink::~RedisLink() { redisFree(context_); }

Status RedisLink::Login(const StoreUrl& url) {
  if (!url.password.empty()) {
    std::vector<std::string_view> words = {"AUTH"};
    if (!url.user.empty()) words.push_back(url.user);
    words.push_back(url.password);
    EBB_RETURN_IF_ERROR(Do(words).status());
  }
  return url.database == 0 ? OkStatus() : Do({"SELECT", std::to_string(url.database)}).status();
}

bool RedisLink::is_broken() const { return context_->err != 0; }

Status RedisLink::Broken() const {
  return IoError(fmt::format("the session store does not answer: {}",
                             context_->err != 0 ? context_->errstr : "no reply"));
}

Status RedisLink::Send(const std::vector<std::string_view>& words) {
  std::vector<const char*> texts;
  std::vector<size_t> sizes;
  for (const std::string_view word : words) {
    texts.push_back(word.data());
    sizes.push_back(word.size());
  }
  const int count = static_cast<int>(words.size());
  if (redisAppendCommandArgv(context_, count, texts.data(), sizes.data()) != REDIS_OK) {
    return Broken();
  }
  return OkStatus();
}

Result<RedisReply> RedisLink::Receive() {
  void* raw = nullptr;
  if (redisGetReply(context_, &raw) != REDIS_OK || raw == nullptr) return Broken();
  const std::unique_ptr<redisReply, FreeReply> reply(static_cast<redisReply*>(raw));
  if (reply->type == REDIS_REPLY_ERROR) return ErrorOf({reply->str, reply->len});
  return Converted(*reply);
}

Result<RedisReply> RedisLink::Do(const std::vector<std::string_view>& words) {
  EBB_RETURN_IF_ERROR(Send(words));
  return Receive();
}

}  // namespace ebb::store
