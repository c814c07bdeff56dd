// Checks sessions of several API keys that a server fetches at the same time: each client gets its
// own conversation, and the store keeps them apart.
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <vector>

#include "src/server/access/api_keys.h"
#include "tests/server/sessions/replica_fixture.h"

namespace ebb::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr int kTokens = 40;
constexpr int kNumSessions = 4;  // sessions of each tenant

class SessionIsolationTest : public ReplicaTest {
 protected:
  void SetUp() override {
    ReplicaTest::SetUp();
    std::ofstream keys(folder_.path() + "/keys");
    for (const std::string tenant : {"one", "two"}) {
      keys << tenant << ' ';
      for (const unsigned char byte : HashKey("key-" + tenant)) keys << fmt::format("{:02x}", byte);
      keys << '\n';
    }
    keys.close();
    std::filesystem::permissions(folder_.path() + "/keys", std::filesystem::perms::owner_read);
  }
  [[nodiscard]] Replica StartServer(const std::string& idle) const {
    return Replica(sessions_, {"--api-keys", folder_.path() + "/keys", "--session-idle", idle});
  }
  static ClientAnswer AskAs(const std::string& tenant, const Replica& replica, const json& body) {
    Client client(replica.port());
    const std::string headers =
        fmt::format("Authorization: Bearer key-{}\r\nContent-Type: application/json\r\n", tenant);
    client.Send(Client::Request("POST", "/v1/chat/completions", body.dump(), headers));
    return client.Receive();
  }
  struct Talk {
    std::string tenant;
    std::string id;
    std::vector<json> expected;  // answers of turn 0, 1, ...
    [[nodiscard]] uint64_t QuestionOf(uint64_t turn) const {
      return std::hash<std::string>()(tenant + id) % 1000 + turn;
    }
  };
  // Returns conversations with the same ids for both tenants, and answers of a server with one
  // client at a time.
  std::vector<Talk> Talks(uint64_t num_turns) {
    std::vector<Talk> talks;
    for (const std::string tenant : {"one", "two"}) {
      for (int i = 0; i < kNumSessions; ++i) {
        Talk talk = {tenant, fmt::format("s{}", i), {}};
        for (uint64_t turn = 0; turn < num_turns; ++turn) {
          const std::string quiet_id = tenant + talk.id;
          talk.expected.push_back(Undisturbed(quiet_id, talk.QuestionOf(turn), kTokens));
        }
        talks.push_back(std::move(talk));
      }
    }
    return talks;
  }
  // Sends a turn of all sessions at once.
  static void AskAll(const Replica& replica, const std::vector<Talk>& talks, uint64_t turn) {
    std::vector<std::future<ClientAnswer>> answers;
    for (const Talk& talk : talks) {
      answers.push_back(std::async(std::launch::async, [&] {
        return AskAs(talk.tenant, replica, Turn(talk.id, talk.QuestionOf(turn), kTokens));
      }));
    }
    for (size_t i = 0; i < talks.size(); ++i) {
      SCOPED_TRACE(
          fmt::format("tenant {}, session {}, turn {}", talks[i].tenant, talks[i].id, turn));
      ExpectSame(answers[i].get(), talks[i].expected[turn]);
    }
  }
};

TEST_P(SessionIsolationTest, ClientsThatComeAtOnceAfterARestartGetTheirOwnConversations) {
  constexpr uint64_t kTurns = 4;
  const std::vector<Talk> talks = Talks(kTurns);
  for (uint64_t turn = 0; turn < kTurns; ++turn) {
    Replica replica = StartServer("300");
    AskAll(replica, talks, turn);
    replica.process().Kill();
  }
}

TEST_P(SessionIsolationTest, SessionsThatDoNotStayInMemoryAreNotMixed) {
  constexpr uint64_t kTurns = 4;
  const std::vector<Talk> talks = Talks(kTurns);
  const Replica replica = StartServer("0");
  for (uint64_t turn = 0; turn < kTurns; ++turn) {
    AskAll(replica, talks, turn);
    Sleep(1.2);  // the server drops sessions from memory within this time
  }
}

INSTANTIATE_TEST_SUITE_P(Every, SessionIsolationTest, testing::Values(Place::kFile, Place::kRedis),
                         PlaceName);

class FolderIsolationTest : public SessionIsolationTest {};

TEST_P(FolderIsolationTest, ErrorsOfDamagedSessionsNameNoPath) {
  { AskAs("one", StartServer("300"), Turn("s", 1, kTokens)); }
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
    if (entry.path().extension() == ".data") std::filesystem::resize_file(entry.path(), 100);
  }
  const Replica replica = StartServer("300");
  const ClientAnswer cut = AskAs("one", replica, Turn("s", 2, kTokens));
  EXPECT_EQ(cut.json()["error"]["code"], "session_corrupt") << cut.body;
  EXPECT_THAT(cut.body, Not(HasSubstr(folder_.path())));
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_.path())) {
    if (entry.path().extension() == ".data") std::filesystem::remove(entry.path());
  }
  const ClientAnswer missing = AskAs("one", replica, Turn("s", 2, kTokens));
  EXPECT_EQ(missing.json()["error"]["code"], "session_corrupt") << missing.body;
  EXPECT_THAT(missing.body, Not(HasSubstr(folder_.path())));
}

INSTANTIATE_TEST_SUITE_P(Every, FolderIsolationTest, testing::Values(Place::kFile), PlaceName);

}  // namespace
}  // namespace ebb::server
