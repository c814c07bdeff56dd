// Runs servers as processes that share a store, to be stopped, paused and killed.
#ifndef EBB_TESTS_SERVER_SESSIONS_REPLICA_FIXTURE_H_
#define EBB_TESTS_SERVER_SESSIONS_REPLICA_FIXTURE_H_

#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "ebb/lab/pebble.h"
#include "tests/server/client.h"
#include "tests/support/child_process.h"
#include "tests/support/redis_server.h"
#include "tests/support/skip.h"

namespace ebb::server {

// Replica is a process that runs `ebb serve`.
class Replica {
 public:
  // Starts the server with the further options `more`; it listens when the constructor returns.
  explicit Replica(const std::string& sessions, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {EBB_BINARY_PATH,
                                      "serve",
                                      "-m",
                                      "pebble",
                                      "--port",
                                      "0",
                                      "--threads",
                                      "1",
                                      "--dequantize",
                                      "--sessions",
                                      sessions,
                                      "--session-lease",
                                      "2",
                                      "--temp",
                                      "0",
                                      "--checkpoint-every",
                                      "16"};
    words.insert(words.end(), more.begin(), more.end());
    process_ = std::make_unique<ChildProcess>(words);
    const std::string line = process_->ReadLine();
    const size_t colon = line.rfind(':');
    const bool listens = line.find(" at http://") != std::string::npos;
    EXPECT_TRUE(listens) << line;
    if (listens) port_ = static_cast<uint16_t>(std::stoi(line.substr(colon + 1)));
  }
  [[nodiscard]] uint16_t port() const { return port_; }
  [[nodiscard]] ChildProcess& process() { return *process_; }

  [[nodiscard]] ClientAnswer Ask(const nlohmann::json& body) const {
    return Client(port_).Post("/v1/chat/completions", body);
  }
  [[nodiscard]] ClientAnswer Get(const std::string& path) const { return Client(port_).Get(path); }
  // Returns a client that has sent a request and waits. The connection closes after the answer, so
  // that waiting for more bytes than there are ends soon.
  [[nodiscard]] std::unique_ptr<Client> Begin(const nlohmann::json& body) const {
    auto client = std::make_unique<Client>(port_);
    client->Send(Client::Request("POST", "/v1/chat/completions", body.dump(),
                                 "Content-Type: application/json\r\nConnection: close\r\n"));
    return client;
  }

 private:
  std::unique_ptr<ChildProcess> process_;
  uint16_t port_ = 0;
};

enum class Place { kFile, kRedis };
inline std::string PlaceName(const testing::TestParamInfo<Place>& info) {
  return info.param == Place::kFile ? "File" : "Redis";
}

class ReplicaTest : public testing::TestWithParam<Place> {
 protected:
  void SetUp() override {
    std::signal(SIGPIPE, SIG_IGN);
    if (GetParam() == Place::kFile) {
      sessions_ = "file:" + folder_.path() + "/store";
    } else if (RedisServer::ProgramOf(RedisKind::kRedis).empty()) {
      EBB_SKIP_WITHOUT("redis") << RedisServer::SkipReason(RedisKind::kRedis);
    } else {
      redis_.emplace(RedisKind::kRedis);
      sessions_ = redis_->url();
    }
  }

  // Returns the next request of a session; the answer is long enough to be cut off in the middle.
  static nlohmann::json Turn(const std::string& id, uint64_t number, int tokens = 400) {
    const std::string question = MakePebbleProblem(1, number).Question();
    return {{"messages", {{{"role", "user"}, {"content", question}}}},
            {"max_tokens", tokens},
            {"ignore_eos", true},
            {"ebb", {{"session", id}, {"logits_hash", true}}}};
  }
  static nlohmann::json Streamed(nlohmann::json body) {
    body["stream"] = true;
    return body;
  }
  // Returns the answer of a server that is never disturbed, to compare with.
  nlohmann::json Undisturbed(const std::string& id, uint64_t number, int tokens = 400) {
    if (!quiet_) quiet_.emplace("file:" + folder_.path() + "/quiet");
    const ClientAnswer answer = quiet_->Ask(Turn(id, number, tokens));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.json();
  }
  static void ExpectSame(const ClientAnswer& answer, const nlohmann::json& expected) {
    ASSERT_EQ(answer.status, 200) << answer.body;
    const nlohmann::json whole = answer.json();
    EXPECT_EQ(whole["choices"], expected["choices"]);
    EXPECT_EQ(whole["usage"]["completion_tokens"], expected["usage"]["completion_tokens"]);
    EXPECT_EQ(whole["ebb"]["logits_hash"], expected["ebb"]["logits_hash"]);
  }
  static int64_t GeneratedBy(const Replica& replica) {
    const std::string text = replica.Get("/metrics").body;
    const std::string name = "\nebb_generated_tokens_total ";
    const size_t found = text.find(name);
    return found == std::string::npos ? -1 : std::stoll(text.substr(found + name.size()));
  }
  static void Sleep(double seconds) {
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  }

  TemporaryFolder folder_;
  std::optional<RedisServer> redis_;
  std::string sessions_;
  std::optional<Replica> quiet_;
};

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_SESSIONS_REPLICA_FIXTURE_H_
