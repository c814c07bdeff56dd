// Checks limits, and clients that are slow, idle or gone.
#include <memory>
#include <vector>

#include "tests/server/server_fixture.h"

namespace ebb::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::StartsWith;

class ConnectionsTest : public ServerTest {
 protected:
  static std::string Stream(const json& more = json::object()) {
    json body = Chat(1, {{"stream", true}, {"ignore_eos", true}});
    body.update(more);
    return Client::Request("POST", "/v1/chat/completions", body.dump(),
                           "Content-Type: application/json\r\n");
  }
  // Waits until the server has `number` connections, with the one that asks.
  void AwaitConnections(int number) {
    const std::string line = fmt::format("ebb_connections {}\n", number);
    for (int i = 0; i < 6000; ++i) {
      if (Client(port()).Get("/metrics").body.find(line) != std::string::npos) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    FAIL() << "connections are left";
  }
  void AwaitIdle() {
    Await([](const Figures& f) { return f.waiting + f.reading + f.decoding + f.parked == 0; });
  }
};

TEST_F(ConnectionsTest, AConnectionServesManyRequestsOneAfterTheOther) {
  Start();
  Client client(port());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(client.Get("/health").status, 200);
    EXPECT_EQ(client.Post("/v1/chat/completions", Chat(1, {{"max_tokens", 2}})).status, 200);
  }
  // Sends three requests in one write (pipelining).
  client.Send(Client::Request("GET", "/health") + Client::Request("GET", "/v1/models") +
              Client::Request("GET", "/nothing"));
  EXPECT_EQ(client.Receive().status, 200);
  EXPECT_THAT(client.Receive().body, HasSubstr("pebble"));
  EXPECT_EQ(client.Receive().status, 404);
}

TEST_F(ConnectionsTest, AnOlderClientGetsAStreamThatEndsWithTheConnection) {
  Start();
  Client client(port());
  std::string request = Stream({{"max_tokens", 3}});
  request.replace(request.find("HTTP/1.1"), 8, "HTTP/1.0");
  client.Send(request);
  const ClientAnswer answer = client.Receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_FALSE(answer.headers.contains("transfer-encoding"));
  EXPECT_EQ(answer.events().back(), "[DONE]");
}

TEST_F(ConnectionsTest, AHeadHasNoBody) {
  Start();
  Client client(port());
  client.Send(Client::Request("HEAD", "/health") + Client::Request("GET", "/health"));
  const std::string bytes = client.ReceiveSome(200);
  EXPECT_THAT(bytes, HasSubstr("\r\n\r\nHTTP/1.1 200"));
  // HEAD for a stream has no body either, and does not count as a watcher.
  for (int i = 0; i < 20; ++i) {
    Client head(port());
    head.Send(Client::Request("HEAD", "/v1/ebb/events"));
    EXPECT_THAT(head.ReceiveSome(12), StartsWith("HTTP/1.1 200"));
    EXPECT_TRUE(head.IsClosedByServer());
  }
  Client watcher(port());
  watcher.Send(Client::Request("GET", "/v1/ebb/events"));
  EXPECT_THAT(watcher.ReceiveSome(12), StartsWith("HTTP/1.1 200"));
}

TEST_F(ConnectionsTest, WhoGoesBehindAnotherRequestIsNoticedToo) {
  Start();
  {
    Client client(port());
    json body = Chat(1, {{"ignore_eos", true}});
    client.Send(Client::Request("POST", "/v1/chat/completions", body.dump(),
                                "Content-Type: application/json\r\n"));
    Await([](const Figures& f) { return f.decoding == 1; });
    client.Send(Client::Request("GET", "/health"));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  AwaitIdle();
}

TEST_F(ConnectionsTest, ABodyIsAwaitedAfterItsHeader) {
  Start();
  Client client(port());
  const std::string body = R"({"content": "First"})";
  client.Send(
      fmt::format("POST /tokenize HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\n"
                  "Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
                  body.size()));
  EXPECT_THAT(client.ReceiveSome(25), StartsWith("HTTP/1.1 100 Continue"));
  client.Send(body);
  EXPECT_EQ(client.Receive().status, 200);
}

// RFC 9112, 2.2 and RFC 9110, 10.1.1.
TEST_F(ConnectionsTest, EmptyLinesAheadOfARequestAreSkippedAndAnOldClientAwaitsNothing) {
  Start();
  Client client(port());
  for (const char* lines : {"\r\n", "\r\n\r\n\r\n", ""}) {
    client.Send(std::string(lines) + "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    EXPECT_EQ(client.Receive().status, 200);
  }
  client.Send("\r");
  client.Send("\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.Receive().status, 200);
  Client old(port());
  old.Send(
      "POST /tokenize HTTP/1.0\r\nExpect: 100-continue\r\nContent-Type: application/json\r\n"
      "Content-Length: 15\r\n\r\n{\"content\": \"\"}");
  EXPECT_EQ(old.Receive().status, 200);
}

struct Limit {
  std::string request;
  int status;
  std::string code;
};

TEST_F(ConnectionsTest, WhatIsTooLongOrNoRequestIsRefused) {
  ServerOptions options = Options();
  options.http.body_bytes = 100'000;
  Start(options);
  const Limit limits[] = {
      {"GET /health HTTP/1.1\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n", 431,
       "header_too_large"},
      {Client::Request("POST", "/tokenize", std::string(100'001, ' ')), 413, "body_too_large"},
      {"POST /tokenize HTTP/1.1\r\nContent-Length: 9999999999\r\n\r\n", 413, "body_too_large"},
      {"POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n40000\r\n" +
           std::string(0x40000, ' '),
       413, "body_too_large"},
      {"hello\r\n\r\n", 400, "bad_request"},
      {"GET /health HTTP/9.9\r\n\r\n", 400, "bad_request"},
      {"POST /tokenize HTTP/1.1\r\nContent-Length: x\r\n\r\n", 400, "bad_request"},
  };
  for (const Limit& limit : limits) {
    Client client(port());
    client.Send(limit.request);
    const ClientAnswer answer = client.Receive();
    EXPECT_EQ(answer.status, limit.status) << limit.request.substr(0, 60);
    EXPECT_EQ(answer.json()["error"]["code"], limit.code) << answer.body;
    EXPECT_TRUE(client.IsClosedByServer());
  }
}

TEST_F(ConnectionsTest, WhoIsTooSlowIsTurnedAway) {
  ServerOptions options = Options();
  options.http.header_seconds = options.http.body_seconds = options.http.idle_seconds = 0.2;
  Start(options);
  Client idle(port()), header(port()), body(port());
  header.Send("GET /hea");
  body.Send("POST /tokenize HTTP/1.1\r\nContent-Length: 5\r\n\r\n{");
  EXPECT_EQ(header.Receive().json()["error"]["code"], "request_timeout");
  EXPECT_EQ(body.Receive().status, 408);
  EXPECT_TRUE(idle.IsClosedByServer());
}

TEST_F(ConnectionsTest, SixtyFourIdleConnectionsCostNothing) {
  Start();
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 64; ++i) {
    idle.push_back(std::make_unique<Client>(port()));
    EXPECT_EQ(idle.back()->Get("/health").status, 200);
  }
  EXPECT_THAT(idle.front()->Get("/metrics").body, HasSubstr("ebb_connections 64"));
  EXPECT_EQ(Client(port()).Post("/v1/chat/completions", Chat(1, {{"max_tokens", 5}})).status, 200);
  idle.clear();
  AwaitConnections(1);
}

TEST_F(ConnectionsTest, BeyondTheMostConnectionsOnesWaitForTheirTurn) {
  ServerOptions options = Options();
  options.http.most_connections = 2;
  Start(options);
  auto first = std::make_unique<Client>(port());
  Client second(port());
  EXPECT_EQ(first->Get("/health").status, 200);
  EXPECT_EQ(second.Get("/health").status, 200);
  Client third(port());
  third.Send(Client::Request("GET", "/health"));
  first.reset();
  EXPECT_EQ(third.Receive().status, 200);
}

TEST_F(ConnectionsTest, WhoGoesIsForgottenAtOnceWhateverTheRequestWaitsFor) {
  ServerOptions options = Options();
  options.driver.most_running = 1;
  Start(options);
  auto decoding = std::make_unique<Client>(port());
  decoding->Send(Stream());
  EXPECT_THAT(decoding->ReceiveSome(1000), HasSubstr("reasoning"));
  auto waiting = std::make_unique<Client>(port());
  waiting->Send(Stream());
  Await([](const Figures& f) { return f.waiting == 1; });
  waiting.reset();
  Await([](const Figures& f) { return f.waiting == 0; });
  EXPECT_EQ(server_->figures().decoding, 1u);
  decoding.reset();
  AwaitIdle();
  const Figures figures = server_->figures();
  EXPECT_EQ(figures.ended.at("cancelled"), 2u);
  EXPECT_EQ(figures.arenas[0].used_bytes, 0u);
  // This client does not stream its answer.
  auto whole = std::make_unique<Client>(port());
  whole->Send(Client::Request("POST", "/v1/chat/completions",
                              Chat(1, {{"ignore_eos", true}}).dump(),
                              "Content-Type: application/json\r\n"));
  Await([](const Figures& f) { return f.decoding == 1; });
  whole.reset();
  AwaitIdle();
  EXPECT_EQ(server_->figures().ended.at("cancelled"), 3u);
}

TEST_F(ConnectionsTest, AnotherClientsAnswerIsNotTouchedByOneThatGoes) {
  Start();
  const Solo solo = RunAlone(2, {.max_tokens = 100});
  auto gone = std::make_unique<Client>(port());
  gone->Send(Stream());
  Client stays(port());
  stays.Send(Client::Request("POST", "/v1/chat/completions", Chat(2, {{"max_tokens", 100}}).dump(),
                             "Content-Type: application/json\r\n"));
  Await([](const Figures& f) { return f.decoding == 2; });
  gone.reset();
  EXPECT_EQ(stays.Receive().json()["ebb"]["logits_hash"], solo.hash);
}

TEST_F(ConnectionsTest, AStreamThatWaitsSendsComments) {
  ServerOptions options = Options();
  options.driver.most_running = 1;
  options.http.ping_seconds = 0.02;
  Start(options);
  Client first(port());
  first.Send(Stream());
  EXPECT_THAT(first.ReceiveSome(1000), HasSubstr("reasoning"));
  Client waiting(port());
  waiting.Send(Stream());
  const std::string bytes = waiting.ReceiveSome(700);
  EXPECT_THAT(bytes, HasSubstr("text/event-stream"));
  EXPECT_THAT(bytes, HasSubstr(": ping\n\n"));
}

TEST_F(ConnectionsTest, ASlowReaderGetsAllOfItAndOthersDoNotWait) {
  Start();
  Client slow(port());
  slow.Send(Stream({{"max_tokens", 300}, {"logprobs", true}, {"top_logprobs", 20}}));
  std::string bytes = slow.ReceiveSome(100);
  // The engine finishes the answer while the client does not read.
  Await([](const Figures& f) { return f.ended.contains("length"); });
  EXPECT_EQ(Client(port()).Get("/health").status, 200);
  while (bytes.find("[DONE]") == std::string::npos) {
    const std::string more = slow.ReceiveSome(1);
    ASSERT_FALSE(more.empty());
    bytes += more;
  }
}

TEST_F(ConnectionsTest, AReaderThatTakesNothingIsLeft) {
  ServerOptions options = Options();
  options.http.stall_seconds = 0.3;
  Start(options);
  // The answers exceed the system's buffers: each has some four megabytes of logprobs.
  Client client(port(), /*receive_buffer_bytes=*/4096);
  for (int i = 0; i < 3; ++i) {
    client.Send(Stream({{"n", 8}, {"max_tokens", 400}, {"logprobs", true}, {"top_logprobs", 20}}));
  }
  AwaitConnections(1);
  AwaitIdle();
  EXPECT_EQ(Client(port()).Get("/health").status, 200);
}

TEST_F(ConnectionsTest, AServerThatStopsEndsWhatRunsWithAnError) {
  Start();
  Client streaming(port()), whole(port());
  streaming.Send(Stream());
  EXPECT_THAT(streaming.ReceiveSome(1000), HasSubstr("reasoning"));
  whole.Send(Client::Request("POST", "/v1/chat/completions", Chat(1, {{"ignore_eos", true}}).dump(),
                             "Content-Type: application/json\r\n"));
  Await([](const Figures& f) { return f.decoding == 2; });
  server_.reset();
  EXPECT_EQ(whole.Receive().status, 503);
  const std::string rest = streaming.ReceiveSome(10'000'000);
  EXPECT_THAT(rest, HasSubstr("the server is stopping"));
  EXPECT_THAT(rest, testing::Not(HasSubstr("[DONE]")));
}

TEST_F(ConnectionsTest, AnAbsoluteFormIsTakenAndItsHostCounts) {
  Start();
  Client client(port());
  client.Send("GET http://127.0.0.1:1/v1/models?a=b HTTP/1.1\r\nHost: other.example\r\n\r\n");
  EXPECT_EQ(client.Receive().status, 200);
  client.Send("GET http://other.example/v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(client.Receive().json()["error"]["code"], "host_not_allowed");
  Client hostless(port());
  hostless.Send("GET http:///v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_EQ(hostless.Receive().status, 400);
}

TEST_F(ConnectionsTest, UnreservedCharactersMayBeEncodedInAPath) {
  Start();
  EXPECT_EQ(Client(port()).Get("/%761/mod%65ls").status, 200);
  EXPECT_EQ(Client(port()).Get("/v1%2Fmodels").status, 404);
}

TEST_F(ConnectionsTest, APathWithASlashTooManyIsToldTheRightOne) {
  Start();
  for (const char* path : {"/v1/models/", "//v1/models", "/v1//models", "/v1/models//"}) {
    const ClientAnswer answer = Client(port()).Get(path);
    EXPECT_EQ(answer.status, 404);
    EXPECT_EQ(answer.json()["error"]["message"],
              fmt::format("there is nothing at {}; expected /v1/models", path));
  }
  const ClientAnswer posted = Client(port()).Post("/v1/responses/", json{{"input", "hi"}});
  EXPECT_THAT(posted.body, HasSubstr("expected /v1/responses\""));
}

TEST_F(ConnectionsTest, ANameMayEndWithTheDotOfTheRootAndHasNoCase) {
  ServerOptions options = Options();
  options.allowed_hosts = {"Model.example"};
  Start(options);
  for (const char* host : {"localhost.", "LocalHost.:80", "model.example", "MODEL.EXAMPLE.:8080"}) {
    Client client(port());
    client.Send(fmt::format("GET /v1/models HTTP/1.1\r\nHost: {}\r\n\r\n", host));
    EXPECT_EQ(client.Receive().status, 200) << host;
  }
  Client client(port());
  client.Send("GET /v1/models HTTP/1.1\r\nHost: localhost..\r\n\r\n");
  EXPECT_EQ(client.Receive().status, 403);
}

TEST_F(ConnectionsTest, ABodyInAnotherCodingIsRefusedByItsHeader) {
  Start();
  const auto send = [&](const std::string& header) {
    Client client(port());
    client.Send(Client::Request("POST", "/tokenize", R"({"content": "First"})",
                                "Content-Type: application/json\r\n" + header));
    return client.Receive();
  };
  for (const char* coding : {"gzip", "br", "identity, gzip", "zstd"}) {
    const ClientAnswer answer = send(fmt::format("Content-Encoding: {}\r\n", coding));
    EXPECT_EQ(answer.status, 415);
    EXPECT_EQ(answer.json()["error"]["code"], "unsupported_media_type");
    EXPECT_EQ(answer.json()["error"]["message"],
              fmt::format("Content-Encoding: expected none, found {}", coding));
    EXPECT_EQ(answer.headers.at("accept-encoding"), "identity");
  }
  for (const char* coding : {"identity", "Identity", ""}) {
    EXPECT_EQ(send(fmt::format("Content-Encoding: {}\r\n", coding)).status, 200) << coding;
  }
  Client client(port());
  client.Send(
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n"
      "0\r\n\r\n");
  EXPECT_EQ(client.Receive().status, 501);
}

TEST_F(ConnectionsTest, TheAddressesOfANameAreTold) {
  ServerOptions options = Options();
  options.host = "localhost";
  Start(options);
  // Whether the name also stands for ::1 depends on the machine.
  EXPECT_EQ(server_->addresses().front(), fmt::format("127.0.0.1:{}", port()));
  EXPECT_EQ(Client(port()).Get("/health").status, 200);
}

TEST_F(ConnectionsTest, AnAliasIsAnyText) {
  ServerOptions options = Options();
  options.defaults.model_id = "a\"b\nc\x1b{x=\"y\"} 1";
  Start(options);
  const ClientAnswer models = Client(port()).Get("/v1/models");
  EXPECT_EQ(models.json()["data"][0]["id"], options.defaults.model_id);
  EXPECT_THAT(Client(port()).Get("/metrics").body, testing::Not(HasSubstr("\x1b")));
  const ClientAnswer answer =
      Client(port()).Post("/v1/chat/completions", Chat(1, {{"max_tokens", 1}, {"no_field", 1}}));
  EXPECT_EQ(answer.json()["model"], options.defaults.model_id);
  EXPECT_EQ(answer.headers.at("x-ebb-ignored"), "no_field");
}

TEST_F(ConnectionsTest, APortThatIsTakenAndAHostThatIsNotThereAreErrors) {
  Start();
  ServerOptions options = Options();
  options.port = port();
  auto second = Server::Start(model_, options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kIo);
  EXPECT_THAT(second.status().message(), HasSubstr("cannot listen on 127.0.0.1:"));
  options.host = "no.such.host.invalid";
  second = Server::Start(model_, options);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.status().code(), StatusCode::kInvalidArgument);
  EXPECT_THAT(second.status().message(), HasSubstr("cannot resolve the address"));
}

}  // namespace
}  // namespace ebb::server
