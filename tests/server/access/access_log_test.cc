// Tests the access log of a server, and the headers that it shares with other servers' logs.
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "src/server/access/api_keys.h"
#include "tests/server/server_fixture.h"
#include "tests/support/temp_folder.h"

namespace ebb::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;

constexpr char kParent[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

class ServerLogTest : public ServerTest {
 protected:
  [[nodiscard]] std::string path() const { return folder_.File("access.log"); }
  [[nodiscard]] ServerOptions LoggingOptions() const {
    ServerOptions options = Options();
    auto log = AccessLog::Open(path(), AccessLogFormat::kJson);
    EXPECT_TRUE(log.ok());
    options.access_log = *log;
    return options;
  }
  // Waits for `number` lines, which are written after the answers.
  [[nodiscard]] std::vector<json> AwaitLines(size_t number) const {
    std::vector<json> lines;
    for (int i = 0; i < 6000 && lines.size() < number; ++i) {
      lines.clear();
      std::ifstream file(path());
      for (std::string line; std::getline(file, line);) lines.push_back(json::parse(line));
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(lines.size(), number);
    lines.resize(number);
    return lines;
  }
  static std::string Post(const json& body, const std::string& headers = "",
                          const std::string& path = "/v1/chat/completions") {
    return Client::Request("POST", path, body.dump(),
                           "Content-Type: application/json\r\n" + headers);
  }

  TempFolder folder_;
};

TEST_F(ServerLogTest, ARequestHasALineWithItsFigures) {
  Start(LoggingOptions());
  Client client(port());
  const json body = Chat(1, {{"max_tokens", 30}});
  client.Send(Post(body, "X-Request-Id: mine-1\r\n"));
  const ClientAnswer answer = client.Receive();
  EXPECT_EQ(answer.headers.at("x-request-id"), "mine-1");
  const json line = AwaitLines(1)[0];
  const json whole = answer.json();
  EXPECT_EQ(line["request_id"], "mine-1");
  EXPECT_EQ(line["remote"], "127.0.0.1");
  EXPECT_EQ(line["method"], "POST");
  EXPECT_EQ(line["path"], "/v1/chat/completions");
  EXPECT_EQ(line["status"], 200);
  EXPECT_EQ(line["prompt_tokens"], whole["usage"]["prompt_tokens"]);
  EXPECT_EQ(line["cached_tokens"], 0);
  EXPECT_EQ(line["generated_tokens"], 30);
  EXPECT_EQ(line["thought_tokens"],
            whole["usage"]["completion_tokens_details"]["reasoning_tokens"]);
  EXPECT_EQ(line["parks"], 0);
  EXPECT_EQ(line["finish"], "length");
  EXPECT_LE(line["queue_seconds"], line["first_token_seconds"]);
  EXPECT_LE(line["first_token_seconds"], line["total_seconds"]);
  EXPECT_EQ(line["request_bytes"], body.dump().size());
  EXPECT_GT(line["response_bytes"], answer.body.size());
  EXPECT_EQ(line["complete"], true);
  EXPECT_FALSE(line.contains("key"));
  EXPECT_FALSE(line.contains("error"));
}

TEST_F(ServerLogTest, ARequestWithoutAnIdHasTheOneOfItsAnswer) {
  Start(LoggingOptions());
  Client client(port());
  client.Send(Post(Chat(1, {{"max_tokens", 3}, {"stream", true}}), "X-Request-Id: no id!\r\n"));
  const ClientAnswer stream = client.Receive();
  client.Send(Client::Request("GET", "/health"));
  const ClientAnswer health = client.Receive();
  const auto lines = AwaitLines(2);
  EXPECT_EQ(lines[0]["request_id"], stream.headers.at("x-request-id"));
  EXPECT_EQ(lines[0]["request_id"], json::parse(stream.events()[0])["id"]);
  EXPECT_EQ(lines[0]["finish"], "length");
  EXPECT_EQ(lines[1]["request_id"], health.headers.at("x-request-id"));
  EXPECT_EQ(lines[1]["path"], "/health");
  EXPECT_FALSE(lines[1].contains("finish"));
}

TEST_F(ServerLogTest, ChoicesShareAPromptInALineAsInTheUsage) {
  Start(LoggingOptions());
  const json usage = Client(port())
                         .Post("/v1/chat/completions", Chat(1, {{"max_tokens", 4}, {"n", 3}}))
                         .json()["usage"];
  const json line = AwaitLines(1)[0];
  EXPECT_EQ(line["prompt_tokens"], usage["prompt_tokens"]);
  EXPECT_EQ(line["generated_tokens"], 12);
  EXPECT_EQ(line["generated_tokens"], usage["completion_tokens"]);
}

TEST_F(ServerLogTest, WhatIsRefusedHasALineToo) {
  ServerOptions options = LoggingOptions();
  options.http.body_bytes = 1000;
  Start(options);
  const auto send = [&](const std::string& bytes) {
    Client client(port());
    client.Send(bytes);
    return client.Receive();
  };
  send("hello\r\n\r\n");
  EXPECT_EQ(AwaitLines(1).back()["status"], 400);
  send(Client::Request("POST", "/tokenize", std::string(1001, ' ')));
  json line = AwaitLines(2).back();
  EXPECT_EQ(line["status"], 413);
  EXPECT_EQ(line["error"], "body_too_large");
  EXPECT_EQ(line["path"], "/tokenize");
  const ClientAnswer refused = send(Post({{"messages", json::array()}}));
  line = AwaitLines(3).back();
  EXPECT_EQ(line["status"], 400);
  EXPECT_EQ(line["error"], refused.json()["error"]["code"]);
  EXPECT_EQ(line["request_id"], refused.headers.at("x-request-id"));
  send(Client::Request("GET", "/secret?token=word"));
  line = AwaitLines(4).back();
  EXPECT_EQ(line["path"], "/secret") << "a query may hold secrets";
  EXPECT_EQ(line["status"], 404);
}

TEST_F(ServerLogTest, AClientThatGoesHasALineWithWhatWasGenerated) {
  Start(LoggingOptions());
  {
    Client whole(port());
    whole.Send(Post(Chat(1, {{"ignore_eos", true}})));
    Await([](const Figures& f) { return f.decoding == 1; });
  }
  json line = AwaitLines(1)[0];
  EXPECT_EQ(line["status"], 499);
  EXPECT_EQ(line["finish"], "cancelled");
  EXPECT_EQ(line["complete"], false);
  EXPECT_GT(line["prompt_tokens"], 0);
  {
    Client stream(port());
    stream.Send(Post(Chat(1, {{"ignore_eos", true}, {"stream", true}})));
    EXPECT_THAT(stream.ReceiveSome(2000), HasSubstr("reasoning"));
  }
  line = AwaitLines(2)[1];
  EXPECT_EQ(line["status"], 200);
  EXPECT_EQ(line["finish"], "cancelled");
  EXPECT_EQ(line["complete"], false);
  EXPECT_GT(line["generated_tokens"], 0);
  EXPECT_GT(line["response_bytes"], 1000);
}

TEST_F(ServerLogTest, TraceContextIsHandedBackAndLogged) {
  Start(LoggingOptions());
  const auto send = [&](const std::string& headers) {
    Client client(port());
    client.Send(Client::Request("GET", "/health", "", headers));
    return client.Receive();
  };
  const ClientAnswer both =
      send(fmt::format("traceparent: {}\r\ntracestate: a=1\r\nTraceState: b=2\r\n", kParent));
  EXPECT_EQ(both.headers.at("traceparent"), kParent);
  EXPECT_EQ(both.headers.at("tracestate"), "a=1,b=2");
  EXPECT_EQ(AwaitLines(1)[0]["traceparent"], kParent);
  for (const std::string& bad :
       {std::string("traceparent: 00-1-2-03\r\n"), std::string("tracestate: a=1\r\n"),
        fmt::format("traceparent: {0}\r\ntraceparent: {0}\r\n", kParent)}) {
    const ClientAnswer none = send(bad);
    EXPECT_FALSE(none.headers.contains("traceparent")) << bad;
    EXPECT_FALSE(none.headers.contains("tracestate")) << bad;
  }
  for (const json& line : AwaitLines(4)) {
    EXPECT_EQ(line.contains("traceparent"), line == AwaitLines(4)[0]);
  }
  // A refused request is traced too.
  Client client(port());
  client.Send(
      fmt::format("POST /tokenize HTTP/1.1\r\nHost: localhost\r\ntraceparent: {}\r\n"
                  "Content-Length: 99999999\r\n\r\n",
                  kParent));
  EXPECT_EQ(client.Receive().headers.at("traceparent"), kParent);
}

TEST_F(ServerLogTest, AKeyIsToldByItsNameAndNeverItself) {
  ServerOptions options = LoggingOptions();
  std::string hash;
  for (const unsigned char byte : HashKey("a-key-of-alice")) hash += fmt::format("{:02x}", byte);
  auto ring = KeyRing::Parse("alice " + hash + "\n", "keys");
  ASSERT_TRUE(ring.ok());
  options.keys = std::make_shared<const KeyRing>(*std::move(ring));
  Start(options);
  Client client(port());
  for (const char* key : {"a-key-of-alice", "another"}) {
    client.Send(
        Client::Request("GET", "/v1/models", "", fmt::format("Authorization: Bearer {}\r\n", key)));
    (void)client.Receive();
  }
  const auto lines = AwaitLines(2);
  EXPECT_EQ(lines[0]["key"], "alice");
  EXPECT_EQ(lines[1]["error"], "invalid_api_key");
  EXPECT_FALSE(lines[1].contains("key"));
  for (const json& line : lines) {
    EXPECT_THAT(line.dump(), Not(HasSubstr("a-key-of-alice")));
    EXPECT_THAT(line.dump(), Not(HasSubstr("another")));
  }
}

TEST_F(ServerLogTest, ADiskThatIsFullStopsNoRequest) {
  ServerOptions options = Options();
  options.access_log = *AccessLog::Open("/dev/full", AccessLogFormat::kText);
  Start(options);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Client(port()).Get("/health").status, 200);
  while (options.access_log->num_dropped() < 5) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  EXPECT_THAT(Client(port()).Get("/metrics").body, HasSubstr("ebb_access_log_dropped_total "));
}

}  // namespace
}  // namespace ebb::server
