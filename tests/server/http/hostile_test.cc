// Checks that hostile clients neither stop /health from being answered nor make memory grow without
// bound.
#include <sys/resource.h>

#include <atomic>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "src/base/sanitizers.h"
#include "tests/server/server_fixture.h"
#include "tests/support/skip.h"

namespace ebb::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;

uint64_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

class HostileTest : public ServerTest {
 protected:
  static std::string Post(const std::string& path, const std::string& body) {
    return Client::Request("POST", path, body, "Content-Type: application/json\r\n");
  }
  void ExpectHealthy() { EXPECT_EQ(Client(port()).Get("/health").status, 200); }
  // Sends `begin`, then `piece` repeatedly until the server closes the connection.
  void Trickle(const std::string& begin, const std::string& piece) {
    Client client(port());
    client.Send(begin);
    bool is_taken = true;
    for (int i = 0; i < 3000 && is_taken; ++i) {
      is_taken = client.TrySend(piece);
      if (i % 20 == 0) ExpectHealthy();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_FALSE(is_taken) << "it was read for thirty seconds";
  }
};

TEST_F(HostileTest, BytesThatTrickleInDoNotExtendTheTime) {
  ServerOptions options = Options();
  options.http.header_seconds = options.http.body_seconds = 0.3;
  Start(options);
  Trickle("GET /health HTTP/1.1\r\n", "X: y\r\n");
  Trickle("POST /tokenize HTTP/1.1\r\nContent-Length: 100000\r\n\r\n{", " ");
  Trickle("POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "1\r\n \r\n");
}

TEST_F(HostileTest, ManySlowHeadersDoNotKeepOthersOut) {
  ServerOptions options = Options();
  options.http.most_connections = 64;
  options.http.header_seconds = 0.3;
  Start(options);
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 100; ++i) {
    slow.push_back(std::make_unique<Client>(port()));
    slow.back()->Send("GET /health HTTP/1.1\r\nX-");
  }
  // Slow headers occupy all connections only as long as a header may take.
  ExpectHealthy();
}

TEST_F(HostileTest, ABodyOfAHundredMegabytesIsNeitherReadNorKept) {
  Start();
  const uint64_t before = ResidentBytes();
  const std::string piece(1 << 20, ' ');
  for (const bool chunked : {false, true}) {
    Client client(port());
    client.Send(chunked ? "POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"
                        : "POST /tokenize HTTP/1.1\r\nContent-Length: 104857600\r\n\r\n");
    for (int i = 0; i < 100; ++i) {
      if (!client.TrySend(chunked ? fmt::format("{:x}\r\n{}\r\n", piece.size(), piece) : piece)) {
        break;
      }
    }
    const ClientAnswer answer = client.Receive();
    // A client that keeps sending may see the connection closed instead of the answer.
    EXPECT_TRUE(answer.status == 413 || answer.status == 0) << answer.status;
  }
  ExpectHealthy();
  if (kShadowMemory) return;  // the sanitizer keeps freed memory
  EXPECT_LT(ResidentBytes(), before + (64 << 20));
}

TEST_F(HostileTest, BodiesThatAreBeingReadTakeNoMoreThanTheyMayTogether) {
  ServerOptions options = Options();
  options.http.all_bodies_bytes = 200'000;
  Start(options);
  const std::string body = R"({"content": ")" + std::string(150'000, 'x') + R"("})";
  const std::string request = Post("/tokenize", body);
  Client first(port()), second(port());
  first.Send(request.substr(0, 140'000));
  // The server counts these bytes only after its loop has read them.
  for (int i = 0; i < 50; ++i) ExpectHealthy();
  const ClientAnswer refused = Client(port()).Post("/tokenize", body);
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.json()["error"]["code"], "queue_full");
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  EXPECT_EQ(Client(port()).Post("/tokenize", json{{"content", "x"}}).status, 200);
  first.Send(request.substr(140'000));
  EXPECT_EQ(first.Receive().status, 200);
  second.Send(request);
  EXPECT_EQ(second.Receive().status, 200);
}

TEST_F(HostileTest, BodiesThatAreAnnouncedAndDoNotComeKeepNobodyOut) {
  ServerOptions options = Options();
  options.http.all_bodies_bytes = 1 << 20;
  Start(options);
  std::vector<std::unique_ptr<Client>> silent;
  for (const char* length :
       {"Content-Length: 8388608\r\n\r\n{", "Transfer-Encoding: chunked\r\n\r\n400000\r\n{"}) {
    for (int i = 0; i < 40; ++i) {
      silent.push_back(std::make_unique<Client>(port()));
      silent.back()->Send("POST /tokenize HTTP/1.1\r\nHost: localhost\r\n" + std::string(length));
    }
  }
  const json small = {{"content", "x"}}, large = {{"content", std::string(300'000, 'x')}};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Client(port()).Post("/tokenize", small).status, 200);
    EXPECT_EQ(Client(port()).Post("/tokenize", large).status, 200);
  }
  // A client that sends the limit of all bodies blocks large bodies, but no small ones.
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 4; ++i) {
    slow.push_back(std::make_unique<Client>(port()));
    slow.back()->Send(
        Post("/tokenize", json{{"content", std::string(600'000, 'x')}}.dump()).substr(0, 500'000));
  }
  EXPECT_EQ(Client(port()).Post("/tokenize", small).status, 200);
}

TEST_F(HostileTest, LargeBodiesDoNotKeepASmallRequestWaiting) {
  Start();
  constexpr int kMany = 4;
  const std::string body = json{{"content", std::string(3'000'000, 'x')}}.dump();
  std::atomic<int> num_sent = 0, num_done = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kMany; ++i) {
    threads.emplace_back([&] {
      Client client(port());
      client.Send(Post("/tokenize", body));
      ++num_sent;
      EXPECT_EQ(client.Receive().status, 200);
      ++num_done;
    });
  }
  while (num_sent < kMany) std::this_thread::yield();
  EXPECT_EQ(Client(port()).Post("/v1/chat/completions", Chat(1, {{"max_tokens", 1}})).status, 200);
  EXPECT_LT(num_done, kMany) << "it waited for all of them";
  for (std::thread& thread : threads) thread.join();
}

TEST_F(HostileTest, ChunksWithLongExtensionsAreRefused) {
  Start();
  Client client(port());
  client.Send("POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5;x=");
  const std::string piece(1 << 20, 'y');
  for (int i = 0; i < 40 && client.TrySend(piece); ++i) {
  }
  const int status = client.Receive().status;
  // A client that keeps sending may see the connection closed instead of the answer.
  EXPECT_TRUE(status == 431 || status == 0) << status;
  ExpectHealthy();
}

TEST_F(HostileTest, AHeaderOfAHundredThousandBytesIsRefused) {
  Start();
  const std::string requests[] = {
      "GET /" + std::string(100'000, 'a') + " HTTP/1.1\r\n\r\n",
      "GET /health HTTP/1.1\r\nX: " + std::string(100'000, 'a') + "\r\n\r\n",
      "GET /health HTTP/1.1\r\n" +
          [] {
            std::string lines;
            for (int i = 0; i < 10'000; ++i) lines += fmt::format("X{}: y\r\n", i);
            return lines;
          }() +
          "\r\n"};
  for (const std::string& request : requests) {
    Client client(port());
    client.Send(request);
    EXPECT_EQ(client.Receive().status, 431);
    EXPECT_TRUE(client.IsClosedByServer());
  }
  ExpectHealthy();
}

TEST_F(HostileTest, JsonThatIsDeepOrManyIsRefused) {
  Start();
  std::string deep_object;
  for (int i = 0; i < 20'000; ++i) deep_object += "{\"a\":";
  std::string many = "{\"messages\":[";
  for (int i = 0; i < 50'000; ++i) many += "{},";
  const std::string bodies[] = {
      std::string(200'000, '['),
      "{\"messages\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}",
      deep_object,
      many + "{}]}",
      "{\"content\":\"" + std::string(100'000, '\\') + "\"",
      "{\"content\":\"\xff\xfe\"}",
      "{\"content\":" + std::string(100'000, '9') + "}",
      "{\"content\":1e999999}",
      std::string(1000, '\0'),
      "{\"content\":\"x\"}" + std::string(1, '\0'),
      std::string("{\"content\":\"x\0\"}", 16)};
  for (const std::string& body : bodies) {
    for (const char* path : {"/tokenize", "/v1/chat/completions", "/v1/completions"}) {
      Client client(port());
      client.Send(Post(path, body));
      const ClientAnswer answer = client.Receive();
      EXPECT_EQ(answer.status, 400) << path << " " << body.substr(0, 40);
      EXPECT_TRUE(answer.json()["error"]["message"].is_string()) << answer.body;
    }
  }
  ExpectHealthy();
}

TEST_F(HostileTest, RequestsThatTwoServersWouldReadDifferentlyAreRefused) {
  Start();
  const std::string requests[] = {
      "POST /tokenize HTTP/1.1\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n{   }",
      "POST /tokenize HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
      "POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
      "POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\n",
      "POST /tokenize HTTP/1.1\r\nContent-Length: +5\r\n\r\n{   }",
      "GET /health HTTP/1.1\r\nBad Name: x\r\n\r\n",
      "GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
      "POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0x1e\r\n{",
      "POST /tokenize HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0x\r\n",
      "GET /health HTTP/1.1\r\nX: a\x01z\r\n\r\n"};
  for (const std::string& request : requests) {
    Client client(port());
    client.Send(request);
    const ClientAnswer answer = client.Receive();
    EXPECT_TRUE(answer.status == 400 || answer.status == 413) << answer.status << " " << request;
    EXPECT_TRUE(client.IsClosedByServer());
  }
  ExpectHealthy();
}

TEST_F(HostileTest, WhoClosesHalfOfTheConnectionHasGone) {
  Start();
  const auto ask = [](const json& more) {
    return Post("/v1/chat/completions", Chat(1, more).dump());
  };
  Client stream(port()), whole(port()), cut(port());
  stream.Send(ask({{"stream", true}, {"ignore_eos", true}}));
  whole.Send(ask({{"ignore_eos", true}}));
  Await([](const Figures& f) { return f.decoding == 2; });
  stream.CloseSending();
  whole.CloseSending();
  Await([](const Figures& f) { return f.decoding == 0; });
  EXPECT_EQ(server_->figures().ended.at("cancelled"), 2u);
  cut.Send("POST /tokenize HTTP/1.1\r\nContent-Length: 100\r\n\r\n{");
  cut.CloseSending();
  EXPECT_TRUE(cut.IsClosedByServer());
  ExpectHealthy();
}

// Raises the limit of file descriptors as far as possible. Returns false if it stays below
// `wanted`.
bool RaiseDescriptors(rlim_t wanted) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  if (limit.rlim_cur >= wanted) return true;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  return setrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= wanted;
}

TEST_F(HostileTest, AThousandIdleConnectionsKeepNobodyWaiting) {
  constexpr int kMany = 1000;
  // Both ends of each connection are in this process, and a client has more than its socket.
  if (!RaiseDescriptors(6 * kMany + 200))
    EBB_SKIP_WITHOUT("descriptors") << "too few file descriptors are allowed";
  Start();
  const Solo solo = RunAlone(2, {.max_tokens = 50});
  const uint64_t before = ResidentBytes();
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < kMany; ++i) {
    idle.push_back(std::make_unique<Client>(port()));
    if (i % 2 == 0) {
      EXPECT_EQ(idle.back()->Get("/health").status, 200);
    }
  }
  EXPECT_LT(ResidentBytes(), before + (64 << 20));
  ExpectHealthy();
  const ClientAnswer answer =
      Client(port()).Post("/v1/chat/completions", Chat(2, {{"max_tokens", 50}}));
  EXPECT_EQ(answer.json()["ebb"]["logits_hash"], solo.hash);
  // Each idle client can still send a request.
  EXPECT_EQ(idle.front()->Get("/health").status, 200);
  EXPECT_EQ(idle.back()->Get("/health").status, 200);
}

TEST_F(HostileTest, AHundredReadersThatTakeNothingKeepNobodyWaiting) {
  if (!RaiseDescriptors(1000))
    EBB_SKIP_WITHOUT("descriptors") << "too few file descriptors are allowed";
  ServerOptions options = Options();
  options.driver.most_waiting = 200;
  Start(options);
  std::vector<std::unique_ptr<Client>> slow;
  for (int i = 0; i < 100; ++i) {
    slow.push_back(std::make_unique<Client>(port(), /*receive_buffer_bytes=*/4096));
    slow.back()->Send(
        Post("/v1/chat/completions",
             Chat(1, {{"stream", true}, {"max_tokens", 20}, {"logprobs", true}}).dump()));
  }
  ExpectHealthy();
  Await([](const Figures& f) {
    const auto ended = f.ended.find("length");
    return ended != f.ended.end() && ended->second == 100;
  });
  ExpectHealthy();
}

}  // namespace
}  // namespace ebb::server
