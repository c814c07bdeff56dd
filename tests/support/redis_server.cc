#include "tests/support/redis_server.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

namespace ebb {
namespace {

bool Answers(const std::string& path) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
  char pong[5] = {};
  const bool answers = connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0 &&
                       send(fd, "PING\r\n", 6, MSG_NOSIGNAL) == 6 &&
                       recv(fd, pong, 5, MSG_WAITALL) == 5 && std::memcmp(pong, "+PONG", 5) == 0;
  close(fd);
  return answers;
}

}  // namespace

std::string RedisServer::ProgramOf(RedisKind kind) {
  const bool is_redis = kind == RedisKind::kRedis;
  const char* const named = std::getenv(is_redis ? "EBB_REDIS_SERVER" : "EBB_VALKEY_SERVER");
  if (named != nullptr) return named;
  const std::string found = FindProgram(is_redis ? "redis-server" : "valkey-server");
  if (!found.empty() || !is_redis) return found;
  // Debian's redis-tools hold the server under the name of one of its tools, so that the package
  // that runs it at every start of the machine need not be there.
  return FindProgram("redis-check-rdb");
}

std::string RedisServer::SkipReason(RedisKind kind) {
  return kind == RedisKind::kRedis
             ? "no Redis: install redis-tools or redis-server, or name one by EBB_REDIS_SERVER"
             : "no Valkey: name a valkey-server by EBB_VALKEY_SERVER";
}

RedisServer::RedisServer(RedisKind kind, const std::vector<std::string>& more)
    : kind_(kind), more_(more), socket_(folder_.path() + "/socket") {
  Start();
}

void RedisServer::Stop() { process_.reset(); }

void RedisServer::Start() {
  std::error_code ignored;
  std::filesystem::remove(socket_, ignored);
  std::vector<std::string> words = {
      ProgramOf(kind_), "--port",       "0",         "--save",   "", "--unixsocket", socket_,
      "--dir",          folder_.path(), "--logfile", "/dev/null"};
  words.insert(words.end(), more_.begin(), more_.end());
  process_ = std::make_unique<ChildProcess>(
      words, kind_ == RedisKind::kRedis ? "redis-server" : "valkey-server");
  for (int i = 0; i < 3000 && !Answers(socket_); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
}

}  // namespace ebb
