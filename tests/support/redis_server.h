// A real Redis or Valkey server for one test, in a folder of its own.
#ifndef EBB_TESTS_SUPPORT_REDIS_SERVER_H_
#define EBB_TESTS_SUPPORT_REDIS_SERVER_H_

#include <csignal>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/child_process.h"

namespace ebb {

enum class RedisKind { kRedis, kValkey };

class RedisServer {
 public:
  // The program: EBB_REDIS_SERVER or EBB_VALKEY_SERVER, or the one that PATH finds. Empty: there is
  // none, and a test that needs it is skipped with SkipReason().
  [[nodiscard]] static std::string ProgramOf(RedisKind kind);
  [[nodiscard]] static std::string SkipReason(RedisKind kind);

  // Answers when it returns. more: further options.
  explicit RedisServer(RedisKind kind, const std::vector<std::string>& more = {});

  [[nodiscard]] std::string url() const { return "redis+unix:" + socket_; }
  [[nodiscard]] const std::string& socket() const { return socket_; }
  void Pause() { process_->Signal(SIGSTOP); }
  void Continue() { process_->Signal(SIGCONT); }
  // What it held is lost unless its options say otherwise.
  void Stop();
  void Start();

 private:
  const RedisKind kind_;
  const std::vector<std::string> more_;
  TemporaryFolder folder_;
  std::string socket_;
  std::unique_ptr<ChildProcess> process_;
};

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_REDIS_SERVER_H_
