// Tests a server that drains, and one that listens on a socket in the file system.
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/server/server_fixture.h"
#include "tests/support/temp_folder.h"

namespace ebb::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;

class DrainTest : public ServerTest {
 protected:
  static std::string Stream(const json& more = json::object()) {
    json body = Chat(1, {{"stream", true}});
    body.update(more);
    return Client::Request("POST", "/v1/chat/completions", body.dump(),
                           "Content-Type: application/json\r\n");
  }
  void AwaitDrained() {
    for (int i = 0; i < 6000 && !server_->is_drained(); ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_TRUE(server_->is_drained());
  }
};

TEST_F(DrainTest, WhatRunsIsAnsweredAndNothingElseBegins) {
  Start();
  Client idle(port()), streaming(port()), whole(port());
  EXPECT_EQ(idle.Get("/health").status, 200);
  streaming.Send(Stream({{"max_tokens", 300}, {"ignore_eos", true}}));
  const json body = Chat(2, {{"max_tokens", 300}, {"ignore_eos", true}});
  whole.Send(Client::Request("POST", "/v1/chat/completions", body.dump(),
                             "Content-Type: application/json\r\n"));
  Await([](const Figures& f) { return f.decoding == 2; });
  EXPECT_FALSE(server_->is_drained());
  server_->Drain();
  // The server closes connections without a request.
  EXPECT_TRUE(idle.IsClosedByServer());
  EXPECT_EQ(Client(port()).Get("/health/ready").status, 503);
  EXPECT_EQ(Client(port()).Get("/health/ready").json()["status"], "stopping");
  EXPECT_EQ(Client(port()).Get("/health/live").status, 200);
  EXPECT_EQ(Client(port()).Get("/metrics").status, 200);
  const ClientAnswer refused = Client(port()).Post("/v1/chat/completions", Chat(1));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.json()["error"]["code"], "stopping");
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_EQ(refused.headers.at("connection"), "close");

  const ClientAnswer streamed = streaming.Receive();
  EXPECT_EQ(streamed.events().back(), "[DONE]");
  EXPECT_EQ(whole.Receive().json()["usage"]["completion_tokens"], 300);
  EXPECT_TRUE(whole.IsClosedByServer());
  AwaitDrained();
}

TEST_F(DrainTest, WhoOnlyWatchesHoldsNothingUp) {
  Start();
  Client watcher(port());
  watcher.Send(Client::Request("GET", "/v1/ebb/events"));
  EXPECT_THAT(watcher.ReceiveSome(12), HasSubstr("HTTP/1.1 200"));
  server_->Drain();
  AwaitDrained();
  EXPECT_EQ(Client(port()).Get("/v1/ebb/events").status, 503);
}

TEST_F(DrainTest, WhoStopsReadingHoldsItUpNoLongerThanAStalledWriteMay) {
  ServerOptions options = Options();
  options.http.stall_seconds = 0.3;
  Start(options);
  Client client(port(), /*receive_buffer_bytes=*/4096);
  client.Send(Stream({{"n", 8}, {"max_tokens", 150}, {"logprobs", true}, {"top_logprobs", 20}}));
  Await([](const Figures& f) { return f.decoding > 0; });
  server_->Drain();
  AwaitDrained();
}

class SocketTest : public DrainTest {
 protected:
  ServerOptions On(const std::string& path) {
    ServerOptions options = Options();
    options.host = "unix:" + path;
    return options;
  }
  const TempFolder folder_;
  const std::string path_ = folder_.File("ebb.sock");
};

TEST_F(SocketTest, AnswersAndStreamsThroughASocketAndRemovesIt) {
  Start(On(path_));
  EXPECT_EQ(server_->addresses().front(), "unix:" + path_);
  EXPECT_EQ(server_->port(), 0);
  struct stat info = {};
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660u);
  {
    Client client(path_);
    EXPECT_EQ(client.Get("/health").status, 200);
    client.Send(Stream({{"max_tokens", 5}}));
    EXPECT_EQ(client.Receive().events().back(), "[DONE]");
  }
  server_.reset();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(SocketTest, ASocketInUseIsRefusedAndOneThatWasLeftIsReplaced) {
  Start(On(path_));
  const auto second = Server::Start(model_, On(path_));
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kIo);
  EXPECT_THAT(second.status().message(), HasSubstr("cannot listen on " + path_));
  EXPECT_EQ(Client(path_).Get("/health").status, 200);
  // This is the socket file that a killed server leaves.
  const std::string left = folder_.File("left.sock");
  std::filesystem::rename(path_, left);
  server_.reset();
  ASSERT_TRUE(std::filesystem::exists(left));
  Start(On(left));
  EXPECT_EQ(Client(left).Get("/health").status, 200);
}

TEST_F(SocketTest, AFileOrAPathThatCannotBeIsAnError) {
  std::ofstream(path_) << "mine";
  auto server = Server::Start(model_, On(path_));
  ASSERT_FALSE(server.ok());
  EXPECT_THAT(server.status().message(), HasSubstr("cannot listen on"));
  EXPECT_EQ(std::filesystem::file_size(path_), 4u);
  for (const std::string& bad : {std::string(), std::string(200, 'x')}) {
    server = Server::Start(model_, On(bad));
    ASSERT_FALSE(server.ok());
    EXPECT_EQ(server.status().code(), StatusCode::kInvalidArgument);
    EXPECT_THAT(server.status().Text(), HasSubstr("host: expected unix: and a path"));
  }
  server = Server::Start(model_, On(folder_.File("no/such/folder/s")));
  ASSERT_FALSE(server.ok());
  EXPECT_EQ(server.status().code(), StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace ebb::server
