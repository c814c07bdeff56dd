// Tests keys, their limits, cancelling and the end of a thought over HTTP.
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "src/server/access/api_keys.h"
#include "tests/server/server_fixture.h"

namespace ebb::server {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr const char* kChat = "/v1/chat/completions";

class KeysTest : public ServerTest {
 protected:
  // Returns keys made of lines of a file of keys, with each key in place of its hash.
  static std::shared_ptr<const KeyRing> Keys(
      const std::vector<std::pair<std::string, std::string>>& keys) {
    std::string text;
    for (const auto& [key, options] : keys) {
      text += key + " ";
      for (const unsigned char byte : HashKey("key-" + key)) text += fmt::format("{:02x}", byte);
      text += " " + options + "\n";
    }
    auto ring = KeyRing::Parse(text, "f");
    EXPECT_TRUE(ring.ok()) << ring.status().ToString();
    return std::make_shared<const KeyRing>(*std::move(ring));
  }
  void StartWith(const std::vector<std::pair<std::string, std::string>>& keys) {
    ServerOptions options = Options();
    options.keys = Keys(keys);
    Start(options);
  }
  static std::string As(const std::string& name, const std::string& more = "") {
    return fmt::format("Authorization: Bearer key-{}\r\nContent-Type: application/json\r\n{}", name,
                       more);
  }
  // Sends a request with the key `name` and returns its answer.
  ClientAnswer Ask(const std::string& name, const std::string& method, const std::string& path,
                   const json& body = json::object(), const std::string& more = "") {
    Client client(port());
    client.Send(Client::Request(method, path, method == "POST" ? body.dump() : "", As(name, more)));
    return client.Receive();
  }
  // Receives bytes until they hold `text` or the connection ends.
  static std::string ReceiveUntil(Client* client, const std::string& text) {
    std::string bytes;
    while (bytes.find(text) == std::string::npos) {
      const std::string more = client->ReceiveSome(1);
      if (more.empty()) break;
      bytes += more;
    }
    return bytes;
  }
  // Begins a long stream with the key `name` and receives its first tokens.
  std::unique_ptr<Client> Begin(const std::string& name, const std::string& request_id = "",
                                const json& more = json::object()) {
    json body = Chat(1, {{"stream", true}, {"ignore_eos", true}});
    body.update(more);
    auto client = std::make_unique<Client>(port());
    const std::string id = request_id.empty() ? "" : "X-Request-Id: " + request_id + "\r\n";
    client->Send(Client::Request("POST", kChat, body.dump(), As(name, id)));
    EXPECT_THAT(client->ReceiveSome(1000), HasSubstr("reasoning"));
    return client;
  }
};

// Checks that a server without keys refuses requests of web pages that a user visits.
TEST_F(KeysTest, WithoutKeysPagesOfOthersAreKeptOut) {
  ServerOptions options = Options();
  options.allowed_hosts = {"ebb.example"};
  Start(options);
  const auto status = [&](const std::string& method, const std::string& headers) {
    Client client(port());
    const std::string body = method == "POST" ? R"({"content": "tide"})" : "";
    std::string request = Client::Request(method, method == "POST" ? "/tokenize" : "/v1/models",
                                          body, "Content-Type: application/json\r\n" + headers);
    const size_t host = request.find("Host: localhost\r\n");
    if (headers.starts_with("Host")) request.erase(host, 17);
    client.Send(request);
    return client.Receive().status;
  };
  for (const char* host :
       {"localhost:8080", "127.0.0.1", "[::1]:80", "ebb.example:1", "a.localhost"}) {
    EXPECT_EQ(status("GET", fmt::format("Host: {}\r\n", host)), 200) << host;
  }
  EXPECT_EQ(status("GET", "Host: evil.example\r\n"), 403);
  // The server answers, but the browser does not let the page read the answer.
  EXPECT_EQ(status("GET", "Origin: https://evil.example\r\n"), 200);
  EXPECT_EQ(status("POST", ""), 200);
  EXPECT_EQ(status("POST", "Origin: http://localhost\r\n"), 200);
  EXPECT_EQ(status("POST", "Origin: https://evil.example\r\n"), 403);
  EXPECT_EQ(status("POST", "Origin: null\r\n"), 403);
}

// Checks that a request that is refused during preparation releases its place, on whichever thread
// that is.
TEST_F(KeysTest, RequestsThatAreRefusedAtOnceLeaveNoPlaceTaken) {
  StartWith({{"a", "concurrent=8"}, {"b", ""}, {"c", "concurrent=2"}});
  std::vector<std::thread> clients;
  for (const char* name : {"a", "a", "b", "c"}) {
    clients.emplace_back([this, name] {
      for (int i = 0; i < 100; ++i) {
        const int status = Ask(name, "POST", kChat, {{"messages", 5}}).status;
        EXPECT_TRUE(status == 400 || status == 429) << status;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  for (const char* name : {"a", "c"}) {
    EXPECT_EQ(Ask(name, "POST", kChat, {{"messages", 5}}).status, 400) << name;
  }
}

TEST_F(KeysTest, WithKeysOnlyHealthIsOpen) {
  StartWith({{"a", ""}, {"root", "admin"}});
  for (const char* path : {"/health", "/health/live", "/health/ready"}) {
    EXPECT_EQ(Client(port()).Get(path).status, 200) << path;
  }
  const std::pair<const char*, const char*> others[] = {
      {"GET", "/v1/models"},    {"GET", "/v1/models/pebble"},
      {"GET", "/metrics"},      {"GET", "/no/such/thing"},
      {"POST", kChat},          {"POST", "/v1/completions"},
      {"POST", "/tokenize"},    {"DELETE", "/v1/requests/x"},
      {"GET", "/v1/ebb/status"}};
  for (const auto& [method, path] : others) {
    Client client(port());
    client.Send(Client::Request(method, path));
    const ClientAnswer answer = client.Receive();
    EXPECT_EQ(answer.status, 401) << path;
    EXPECT_EQ(answer.json()["error"]["code"], "missing_api_key") << answer.body;
    EXPECT_EQ(answer.json()["error"]["type"], "authentication_error");
    EXPECT_EQ(answer.headers.at("www-authenticate"), "Bearer");
    EXPECT_TRUE(answer.headers.contains("x-request-id"));
    EXPECT_EQ(Ask("wrong", method, path).json()["error"]["code"], "invalid_api_key");
  }
  EXPECT_EQ(Ask("a", "GET", "/v1/models").status, 200);
  EXPECT_EQ(Ask("a", "POST", kChat, Chat(1, {{"max_tokens", 2}})).status, 200);
  EXPECT_EQ(Ask("a", "GET", "/metrics").status, 403);
  EXPECT_EQ(Ask("root", "GET", "/metrics").status, 200);
  // The pages hold nothing secret; the data that they show needs a key.
  for (const char* page : {"/", "/chat/app.js", "/dashboard"}) {
    EXPECT_EQ(Client(port()).Get(page).status, 200) << page;
  }
  EXPECT_EQ(Client(port()).Get("/props").status, 401);
  EXPECT_EQ(Ask("a", "GET", "/v1/ebb/status").status, 403);
  EXPECT_EQ(Ask("root", "GET", "/v1/ebb/status").status, 200);
}

TEST_F(KeysTest, WhoHasNoKeyIsRefusedBeforeTheBodyIsRead) {
  StartWith({{"a", ""}});
  Client client(port());
  client.Send(
      "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
      "Expect: 100-continue\r\nContent-Length: 1000000\r\n\r\n");
  EXPECT_EQ(client.Receive().status, 401);
  EXPECT_TRUE(client.IsClosedByServer());
}

TEST_F(KeysTest, SoManyRequestsOfAKeyRunAtATimeAndOthersAreNotTouched) {
  StartWith({{"a", "concurrent=1"}, {"b", ""}});
  auto running = Begin("a");
  const ClientAnswer refused = Ask("a", "POST", kChat, Chat(1));
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_EQ(refused.json()["error"]["code"], "rate_limit_exceeded");
  EXPECT_EQ(refused.json()["error"]["type"], "rate_limit_error");
  EXPECT_GE(std::stoi(refused.headers.at("retry-after")), 1);
  EXPECT_EQ(Ask("b", "POST", kChat, Chat(1, {{"max_tokens", 2}})).status, 200);
  // An invalid body occupies a place only while it is read.
  running.reset();
  ClientAnswer wrong;
  do {
    wrong = Ask("a", "POST", kChat, {{"messages", 5}});
  } while (wrong.status == 429);  // the engine has not finished yet
  EXPECT_EQ(wrong.status, 400);
  EXPECT_EQ(Ask("a", "POST", kChat, Chat(1, {{"max_tokens", 2}})).status, 200);
}

TEST_F(KeysTest, RatesAreToldAndKept) {
  StartWith({{"a", "requests-per-minute=2"}, {"t", "tokens-per-minute=10"}});
  const ClientAnswer first = Ask("a", "POST", kChat, Chat(1, {{"max_tokens", 1}}));
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.headers.at("x-ratelimit-limit-requests"), "2");
  EXPECT_EQ(first.headers.at("x-ratelimit-remaining-requests"), "1");
  EXPECT_FALSE(first.headers.contains("x-ratelimit-limit-tokens"));
  EXPECT_EQ(Ask("a", "POST", kChat, Chat(1, {{"max_tokens", 1}})).status, 200);
  const ClientAnswer refused = Ask("a", "POST", kChat, Chat(1, {{"max_tokens", 1}}));
  EXPECT_EQ(refused.status, 429);
  EXPECT_GE(std::stoi(refused.headers.at("retry-after")), 1);
  // Requests without work for the engine are not counted.
  EXPECT_EQ(Ask("a", "POST", "/tokenize", {{"content", "x"}}).status, 200);

  EXPECT_EQ(Ask("t", "POST", kChat, Chat(1, {{"max_tokens", 1}})).status, 200);
  // The prompt had more tokens than the limit, and they are charged before the answer is sent.
  const ClientAnswer spent = Ask("t", "POST", kChat, Chat(1, {{"max_tokens", 1}}));
  EXPECT_EQ(spent.status, 429);
  EXPECT_THAT(spent.body, HasSubstr("tokens per minute"));
  EXPECT_EQ(spent.headers.at("x-ratelimit-remaining-tokens"), "0");
}

TEST_F(KeysTest, APriorityThatAKeyMayNotHaveIsRefused) {
  StartWith({{"a", "priorities=0..2"}});
  const ClientAnswer refused = Ask("a", "POST", kChat, Chat(1, {{"priority", -1}}));
  EXPECT_EQ(refused.status, 403);
  EXPECT_EQ(refused.json()["error"]["param"], "priority");
  EXPECT_EQ(Ask("a", "POST", kChat, Chat(1, {{"priority", 2}, {"max_tokens", 1}})).status, 200);
}

TEST_F(KeysTest, KeysThatAreReadAnewHoldFromThenOn) {
  StartWith({{"a", ""}});
  server_->SetKeys(Keys({{"b", ""}}));
  EXPECT_EQ(Ask("a", "GET", "/v1/models").status, 401);
  EXPECT_EQ(Ask("b", "GET", "/v1/models").status, 200);
}

TEST_F(KeysTest, ACancelledRequestEndsWithAnErrorAndGivesItsMemoryBack) {
  Start();
  for (const bool by_own_name : {true, false}) {
    auto running = Begin("", by_own_name ? "mine" : "");
    std::string id = "mine";
    if (!by_own_name) {
      const std::string more = running->ReceiveSome(300);
      const size_t at = more.find("chatcmpl-");
      ASSERT_NE(at, std::string::npos);
      id = more.substr(at, more.find('"', at) - at);
    }
    const ClientAnswer cancelled = Ask("", "DELETE", "/v1/requests/" + id);
    EXPECT_EQ(cancelled.status, 200) << cancelled.body;
    EXPECT_EQ(cancelled.json()["cancelled"], true);
    const std::string rest = ReceiveUntil(running.get(), "\r\n0\r\n\r\n");
    EXPECT_THAT(rest, HasSubstr("\"code\":\"cancelled\""));
    EXPECT_THAT(rest, Not(HasSubstr("[DONE]")));
    Await([](const Figures& f) { return f.decoding == 0 && f.arenas[0].used_bytes == 0; });
    EXPECT_EQ(Ask("", "DELETE", "/v1/requests/" + id).status, 404);
  }
  EXPECT_EQ(Ask("", "DELETE", "/v1/requests/").status, 404);
}

TEST_F(KeysTest, ACancelledAnswerInOnePieceIsNotAskedForAgain) {
  Start();
  Client whole(port());
  whole.Send(Client::Request("POST", kChat, Chat(1, {{"ignore_eos", true}}).dump(),
                             As("", "X-Request-Id: whole:1\r\n")));
  Await([](const Figures& f) { return f.decoding == 1; });
  EXPECT_EQ(Ask("", "DELETE", "/v1/requests/whole%3A1").status, 200);
  const ClientAnswer answer = whole.Receive();
  EXPECT_EQ(answer.status, 499);
  EXPECT_EQ(answer.json()["error"]["code"], "cancelled");
  EXPECT_EQ(answer.json()["error"]["message"], "the request was cancelled");
  EXPECT_EQ(answer.headers.at("x-should-retry"), "false");
  EXPECT_EQ(answer.headers.at("x-request-id"), "whole:1");
}

TEST_F(KeysTest, OnlyWhoAskedAndAdminsCanCancel) {
  StartWith({{"a", ""}, {"b", ""}, {"root", "admin"}});
  auto running = Begin("a", "job");
  EXPECT_EQ(Ask("b", "DELETE", "/v1/requests/job").status, 404);
  EXPECT_EQ(
      Ask("b", "POST", "/v1/chat/completions/control", {{"id", "job"}, {"action", "reasoning_end"}})
          .json()["success"],
      false);
  EXPECT_EQ(server_->figures().decoding, 1u);
  EXPECT_EQ(Ask("root", "DELETE", "/v1/requests/job").status, 200);
  Await([](const Figures& f) { return f.decoding == 0; });
}

TEST_F(KeysTest, AThoughtEndsWhenItIsAskedTo) {
  Start();
  // The bias keeps the model from ending the thought by itself.
  const auto tag = model_->Tokenize("</think>", Model::AddBos::kNo, Model::Specials::kParse);
  ASSERT_TRUE(tag.ok());
  json body = Chat(1, {{"stream", true}});
  body["logit_bias"] = {{std::to_string(tag->front()), -100}};
  Client client(port());
  client.Send(Client::Request("POST", kChat, body.dump(), As("", "X-Request-Id: t\r\n")));
  std::string text = client.ReceiveSome(1000);
  EXPECT_THAT(text, HasSubstr("reasoning"));
  const json end = {{"id", "t"}, {"action", "reasoning_end"}};
  const ClientAnswer ended = Ask("", "POST", "/v1/chat/completions/control", end);
  EXPECT_EQ(ended.json()["success"], true) << ended.body;
  text += ReceiveUntil(&client, "[DONE]");
  EXPECT_THAT(text, HasSubstr("[DONE]"));
  std::string content;
  const ClientAnswer stream = {.body = text};
  for (const std::string& event : stream.events()) {
    const json chunk = json::parse(event, nullptr, false);
    if (chunk.is_discarded() || chunk["choices"].empty()) continue;
    content += chunk["choices"][0]["delta"].value("content", "");
  }
  EXPECT_FALSE(content.empty()) << text;
  // The request has ended now.
  EXPECT_EQ(Ask("", "POST", "/v1/chat/completions/control", end).json()["success"], false);
}

TEST_F(KeysTest, ControlThatIsWrongIsRefused) {
  Start();
  const auto code = [&](const json& body) {
    const ClientAnswer answer = Ask("", "POST", "/v1/chat/completions/control", body);
    return answer.json()["error"].value("param", "") + " " + std::to_string(answer.status);
  };
  EXPECT_EQ(code({{"action", "reasoning_end"}}), "id 400");
  EXPECT_EQ(code({{"id", "x"}}), "action 400");
  EXPECT_EQ(code({{"id", "x"}, {"action", "stop"}}), "action 400");
  EXPECT_EQ(code({{"id", 5}, {"action", "reasoning_end"}}), "id 400");
  EXPECT_EQ(
      Ask("", "POST", "/v1/chat/completions/control", {{"id", std::string(9000, 'x')}}).status,
      400);
}

TEST_F(KeysTest, EveryAnswerHasARequestId) {
  Start();
  Client client(port());
  EXPECT_THAT(client.Get("/health").headers.at("x-request-id"), StartsWith("req-"));
  EXPECT_THAT(client.Get("/nothing").headers.at("x-request-id"), StartsWith("req-"));
  EXPECT_THAT(client.Post(kChat, std::string("{")).headers.at("x-request-id"), StartsWith("req-"));
  EXPECT_EQ(Ask("", "POST", kChat, Chat(1, {{"max_tokens", 1}}), "X-Request-Id: mine\r\n")
                .headers.at("x-request-id"),
            "mine");
  client.Send("hello\r\n\r\n");
  EXPECT_THAT(client.Receive().headers.at("x-request-id"), StartsWith("req-"));
}

TEST_F(KeysTest, PagesOfOtherOriginsAskOnlyWhereTheyAreNamed) {
  const auto preflight = [&] {
    Client client(port());
    client.Send(Client::Request("OPTIONS", kChat, "",
                                "Origin: https://a.example\r\n"
                                "Access-Control-Request-Method: POST\r\n"));
    return client.Receive();
  };
  Start();
  EXPECT_EQ(preflight().status, 405);
  EXPECT_FALSE(preflight().headers.contains("access-control-allow-origin"));
  server_.reset();
  ServerOptions options = Options();
  options.cors_origins = {"https://a.example"};
  options.keys = Keys({{"a", ""}});
  Start(options);
  // A browser sends no key with a preflight request.
  ClientAnswer answer = preflight();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "https://a.example");
  EXPECT_THAT(answer.headers.at("access-control-allow-headers"), HasSubstr("Authorization"));
  answer = Ask("a", "POST", kChat, Chat(1, {{"max_tokens", 1}, {"stream", true}}),
               "Origin: https://a.example\r\n");
  EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "https://a.example");
  answer = Ask("wrong", "POST", kChat, {}, "Origin: https://a.example\r\n");
  EXPECT_EQ(answer.status, 401);
  EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "https://a.example");
}

}  // namespace
}  // namespace ebb::server
