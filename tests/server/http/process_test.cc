// Tests `ebb serve` as a process: its keys, its socket and its signals.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "src/server/access/api_keys.h"
#include "tests/server/server_fixture.h"
#include "tests/server/server_process.h"
#include "tests/support/temp_folder.h"

namespace ebb::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::Not;
using testing::StartsWith;

class ProcessTest : public testing::Test {
 protected:
  void Start(const std::vector<std::string>& options) {
    process_ = std::make_unique<ServerProcess>(ServerProcess::Ebb(options));
    line_ = process_->ReadLine();
  }
  [[nodiscard]] uint16_t port() const {
    return static_cast<uint16_t>(std::stoi(line_.substr(line_.rfind(':') + 1)));
  }
  static std::string Stream(const json& more = json::object()) {
    json body = {{"messages", {{{"role", "user"}, {"content", "First Ada gets three."}}}},
                 {"stream", true},
                 {"ignore_eos", true}};
    body.update(more);
    return Client::Request("POST", "/v1/chat/completions", body.dump(),
                           "Content-Type: application/json\r\n");
  }
  ClientAnswer GetAs(const std::string& key, const std::string& path) {
    Client client(port());
    client.Send(Client::Request("GET", path, "", "X-Api-Key: " + key + "\r\n"));
    return client.Receive();
  }
  std::string NewKey(const std::string& name) {
    ServerProcess made(ServerProcess::Ebb({"--api-keys", keys_, "--new-key", name}));
    const std::string key = made.ReadLine();
    EXPECT_EQ(made.Wait(), 0) << key;
    return key;
  }

  const TempFolder folder_;
  const std::string keys_ = folder_.File("keys");
  std::unique_ptr<ServerProcess> process_;
  std::string line_;
};

TEST_F(ProcessTest, OnTerminationWhatRunsIsAnswered) {
  Start({});
  Client client(port());
  client.Send(Stream({{"max_tokens", 400}}));
  EXPECT_THAT(client.ReceiveSome(1000), HasSubstr("reasoning"));
  process_->Signal(SIGTERM);
  const std::string rest = client.ReceiveSome(100'000'000);
  EXPECT_THAT(rest, HasSubstr("[DONE]"));
  EXPECT_EQ(process_->Wait(), 0);
  EXPECT_THAT(process_->ReadLine(), IsEmpty());
}

TEST_F(ProcessTest, AnIdleServerEndsAtOnce) {
  Start({"--drain-seconds", "1000"});
  Client idle(port());
  EXPECT_EQ(idle.Get("/health").status, 200);
  process_->Signal(SIGTERM);
  EXPECT_EQ(process_->Wait(), 0);
}

TEST_F(ProcessTest, ASecondSignalEndsWhatRunsWithAnError) {
  Start({"--drain-seconds", "1000"});
  Client client(port());
  client.Send(Stream());
  EXPECT_THAT(client.ReceiveSome(1000), HasSubstr("reasoning"));
  process_->Signal(SIGTERM);
  while (Client(port()).Get("/health/ready").status != 503) {
  }
  EXPECT_FALSE(process_->HasEnded());
  process_->Signal(SIGTERM);
  EXPECT_EQ(process_->Wait(), 0);
  const std::string rest = client.ReceiveSome(100'000'000);
  EXPECT_THAT(rest, HasSubstr("the server is stopping"));
  EXPECT_THAT(rest, Not(HasSubstr("[DONE]")));
}

TEST_F(ProcessTest, TheTimeForDrainingIsLimited) {
  Start({"--drain-seconds", "0"});
  Client client(port());
  client.Send(Stream());
  EXPECT_THAT(client.ReceiveSome(1000), HasSubstr("reasoning"));
  process_->Signal(SIGTERM);
  EXPECT_THAT(client.ReceiveSome(100'000'000), HasSubstr("the server is stopping"));
  EXPECT_EQ(process_->Wait(), 0);
}

TEST_F(ProcessTest, KeysAreMadeAskedForAndReadAnew) {
  const std::string first = NewKey("first");
  EXPECT_THAT(first, MatchesRegex("ebb-[A-Za-z0-9_-]+"));
  Start({"--api-keys", keys_});
  EXPECT_THAT(process_->ReadLine(), HasSubstr("requests need the API key of " + keys_));
  EXPECT_THAT(process_->ReadLine(), HasSubstr("none is an admin's"));
  EXPECT_EQ(GetAs("", "/v1/models").status, 401);
  EXPECT_EQ(GetAs(first, "/v1/models").status, 200);
  const std::string second = NewKey("second");
  EXPECT_EQ(GetAs(second, "/v1/models").status, 401);
  process_->Signal(SIGHUP);
  while (GetAs(second, "/v1/models").status != 200) {
  }
  EXPECT_EQ(GetAs(first, "/v1/models").status, 200);
  // An invalid file of keys changes nothing.
  std::ofstream(keys_, std::ios::app) << "bad line\n";
  process_->Signal(SIGHUP);
  EXPECT_THAT(process_->ReadLine(), HasSubstr("the keys stay as they were: " + keys_ + ", line 3"));
  EXPECT_EQ(GetAs(first, "/v1/models").status, 200);
  process_->Signal(SIGINT);
  EXPECT_EQ(process_->Wait(), 0);
}

TEST_F(ProcessTest, KeysThatOthersCanReadEndItAtOnce) {
  NewKey("first");
  ASSERT_EQ(chmod(keys_.c_str(), 0644), 0);
  Start({"--api-keys", keys_});
  EXPECT_THAT(line_, HasSubstr("others can read or change the file of keys"));
  EXPECT_EQ(process_->Wait(), 2);
  Start({"--api-keys", folder_.File("none")});
  EXPECT_THAT(line_, HasSubstr("cannot open"));
  EXPECT_EQ(process_->Wait(), 2);
  Start({"--new-key", "a"});
  EXPECT_THAT(line_, HasSubstr("--new-key: expected --api-keys FILE"));
  EXPECT_EQ(process_->Wait(), 2);
}

TEST_F(ProcessTest, ASocketInTheFileSystemIsTold) {
  const std::string path = folder_.File("s");
  Start({"--host", "unix:" + path});
  EXPECT_EQ(line_, "ebb: pebble at unix:" + path);
  EXPECT_EQ(Client(path).Get("/health").status, 200);
  process_->Signal(SIGTERM);
  EXPECT_EQ(process_->Wait(), 0);
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

// Checks sockets that a service manager has opened and passes to the server (sd_listen_fds(3)).
TEST_F(ProcessTest, APassedSocketTakesThePlaceOfHostAndPort) {
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(socket, reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(listen(socket, 8), 0);
  ASSERT_EQ(getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size), 0);
  const uint16_t number = ntohs(address.sin_port);
  // This connection waits until the server accepts it.
  Client early(number);
  std::vector<std::string> command = {
      "bash", "-c",
      fmt::format("LISTEN_PID=$$ LISTEN_FDS=1 exec \"$@\" --host 0.0.0.0 3<&{}", socket), "bash"};
  const std::vector<std::string> ebb = ServerProcess::Ebb({});
  command.insert(command.end(), ebb.begin(), ebb.end());
  process_ = std::make_unique<ServerProcess>(command);
  EXPECT_EQ(process_->ReadLine(), fmt::format("ebb: pebble at http://127.0.0.1:{}", number));
  close(socket);
  EXPECT_EQ(early.Get("/health").status, 200);
  // The server knows that it can be reached from this machine only, so it checks Host.
  Client elsewhere(number);
  elsewhere.Send("GET /v1/models HTTP/1.1\r\nHost: other.example\r\n\r\n");
  EXPECT_EQ(elsewhere.Receive().status, 403);
  process_->Signal(SIGTERM);
  EXPECT_EQ(process_->Wait(), 0);
}

TEST_F(ProcessTest, SocketsForAnotherProcessAreLeftAlone) {
  std::vector<std::string> command = {"env", "LISTEN_PID=1", "LISTEN_FDS=1"};
  const std::vector<std::string> ebb = ServerProcess::Ebb({});
  command.insert(command.end(), ebb.begin(), ebb.end());
  process_ = std::make_unique<ServerProcess>(command);
  EXPECT_THAT(process_->ReadLine(), HasSubstr("LISTEN_FDS is ignored: LISTEN_PID says"));
  EXPECT_THAT(process_->ReadLine(), MatchesRegex("ebb: pebble at http://127\\.0\\.0\\.1:[0-9]+"));
}

TEST_F(ProcessTest, WithAConfigurationFileAHangupEndsNothing) {
  const std::string config = folder_.File("serve.toml");
  std::ofstream(config) << "any-model = true\n";
  Start({"--config", config});
  process_->Signal(SIGHUP);
  EXPECT_EQ(Client(port()).Get("/health/ready").status, 200);
  process_->Signal(SIGTERM);
  EXPECT_EQ(process_->Wait(), 0);
}

}  // namespace
}  // namespace ebb::server
