#include "src/server/access/gate.h"
#include "src/server/access/hashes_for_test.h"

#include <string>
#include <utility>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ebb::server {
namespace {

using testing::Contains;
using testing::Each;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;
using testing::StartsWith;

std::string HexOf(const std::string& key) {
  std::string hex;
  for (const unsigned char byte : HashKey(key)) hex += fmt::format("{:02x}", byte);
  return hex;
}

std::shared_ptr<const KeyRing> Keys(const std::string& text) {
  auto ring = KeyRing::Parse(text, "f");
  EXPECT_TRUE(ring.ok()) << ring.status().ToString();
  return std::make_shared<const KeyRing>(*std::move(ring));
}

HttpRequest With(std::map<std::string, std::string> headers) {
  return {.method = "POST", .path = "/x", .headers = std::move(headers)};
}

using Ticket = std::shared_ptr<Gate::Ticket>;

TEST(Gate, WithoutKeysAnybodyMayDoAnything) {
  Gate gate({}, 1);
  HttpRequest request = With({});
  EXPECT_FALSE(gate.Admit(Access::kAdmin, &request).has_value());
  const auto ticket = gate.Enter(request);
  ASSERT_TRUE(ticket.ok());
  EXPECT_EQ((*ticket)->owner(), 0u);
  EXPECT_TRUE(gate.MaySee(request, **ticket));
  EXPECT_EQ(*(*ticket)->PriorityFor(-2), -2);
  EXPECT_THAT(gate.LimitHeaders(request), IsEmpty());
}

TEST(Gate, AKeyComesAsBearerOrAsXApiKey) {
  Gate gate({}, 1);
  gate.SetKeys(Keys(fmt::format("one {}", kHashOfAbc)));
  const std::map<std::string, std::string> good[] = {
      {{"authorization", "Bearer abc"}},
      {{"authorization", "bearer   abc"}},
      {{"x-api-key", "abc"}},
      {{"authorization", "Bearer none"}, {"x-api-key", "abc"}}};
  for (const auto& headers : good) {
    HttpRequest request = With(headers);
    EXPECT_FALSE(gate.Admit(Access::kKey, &request).has_value());
    ASSERT_NE(request.key, nullptr);
    EXPECT_EQ(request.key->name, "one");
  }
  const std::pair<std::map<std::string, std::string>, std::string> bad[] = {
      {{}, "missing_api_key"},
      {{{"authorization", "abc"}}, "missing_api_key"},
      {{{"authorization", "Basic abc"}}, "missing_api_key"},
      {{{"authorization", "Bearer "}}, "missing_api_key"},
      {{{"authorization", "Bearer abc2"}}, "invalid_api_key"},
      {{{"x-api-key", "ab"}}, "invalid_api_key"}};
  for (const auto& [headers, code] : bad) {
    HttpRequest request = With(headers);
    const auto error = gate.Admit(Access::kKey, &request);
    ASSERT_TRUE(error.has_value());
    EXPECT_EQ(error->status, 401);
    EXPECT_EQ(error->code, code);
    EXPECT_FALSE(gate.Admit(Access::kOpen, &request).has_value());
  }
}

TEST(Gate, LimitsAreOfAKeyWhateverItsFileIsReadAnew) {
  Gate gate({}, 1);
  const std::string two = fmt::format("two {} concurrent=1", kHashOfNothing);
  gate.SetKeys(Keys(fmt::format("one {} concurrent=1\n{}", kHashOfAbc, two)));
  HttpRequest request = With({{"x-api-key", "abc"}});
  ASSERT_FALSE(gate.Admit(Access::kKey, &request).has_value());
  auto first = gate.Enter(request);
  ASSERT_TRUE(first.ok());
  const auto second = gate.Enter(request);
  ASSERT_FALSE(second.ok());
  const auto& error = second.error();
  EXPECT_EQ(error.status, 429);
  EXPECT_EQ(error.code, "rate_limit_exceeded");
  EXPECT_GT(error.retry_after.value_or(0), 0);
  EXPECT_THAT(error.message, HasSubstr("\"one\" may have 1 requests at a time"));

  gate.SetKeys(Keys(fmt::format("one {} concurrent=2", kHashOfAbc)));
  HttpRequest again = With({{"x-api-key", "abc"}});
  ASSERT_FALSE(gate.Admit(Access::kKey, &again).has_value());
  auto third = gate.Enter(again);
  EXPECT_TRUE(third.ok());
  EXPECT_FALSE(gate.Enter(again).ok());
  third = ApiError();
  first = ApiError();
  EXPECT_TRUE(gate.Enter(again).ok());
}

TEST(Gate, KeysAreDifferentOwnersAndSeeTheirOwn) {
  Gate gate({}, 1);
  gate.SetKeys(Keys(fmt::format("one {}\ntwo {} admin", kHashOfAbc, HexOf("two"))));
  HttpRequest one = With({{"x-api-key", "abc"}}), two = With({{"x-api-key", "two"}});
  ASSERT_FALSE(gate.Admit(Access::kKey, &one).has_value());
  ASSERT_FALSE(gate.Admit(Access::kAdmin, &two).has_value());
  HttpRequest no_admin = one;
  const auto refused = gate.Admit(Access::kAdmin, &no_admin);
  ASSERT_TRUE(refused.has_value());
  EXPECT_THAT(refused->message, HasSubstr("--new-key NAME --admin"));
  const auto of_one = *gate.Enter(one);
  const auto of_two = *gate.Enter(two);
  EXPECT_NE(of_one->owner(), of_two->owner());
  EXPECT_NE(of_one->owner(), 0u);
  EXPECT_EQ((*gate.Enter(one))->owner(), of_one->owner());
  EXPECT_TRUE(gate.MaySee(one, *of_one));
  EXPECT_FALSE(gate.MaySee(one, *of_two));
  EXPECT_TRUE(gate.MaySee(two, *of_one));
  EXPECT_EQ(gate.Admit(Access::kAdmin, &one)->status, 403);
}

TEST(Gate, APriorityIsWithinWhatAKeyMayHave) {
  Gate gate({}, 1);
  gate.SetKeys(Keys(fmt::format("one {} priorities=1..2", kHashOfAbc)));
  HttpRequest request = With({{"x-api-key", "abc"}});
  ASSERT_FALSE(gate.Admit(Access::kKey, &request).has_value());
  const auto ticket = *gate.Enter(request);
  EXPECT_EQ(*ticket->PriorityFor(2), 2);
  EXPECT_EQ(*ticket->PriorityFor(std::nullopt), 1);
  const auto refused = ticket->PriorityFor(0).error();
  EXPECT_EQ(refused.status, 403);
  EXPECT_EQ(refused.param, "priority");
  EXPECT_THAT(refused.message, HasSubstr("may have 1 to 2, found 0"));
}

TEST(Gate, ChargedTokensAreToldAndHoldBack) {
  Gate gate({}, 1);
  gate.SetKeys(Keys(fmt::format("one {} tokens-per-minute=100", kHashOfAbc)));
  HttpRequest request = With({{"x-api-key", "abc"}});
  ASSERT_FALSE(gate.Admit(Access::kKey, &request).has_value());
  EXPECT_THAT(gate.LimitHeaders(request), Contains(Pair("X-RateLimit-Remaining-Tokens", "100")));
  (*gate.Enter(request))->Charge(1000);
  EXPECT_THAT(gate.LimitHeaders(request), Contains(Pair("X-RateLimit-Remaining-Tokens", "0")));
  const auto error = gate.Enter(request).error();
  EXPECT_THAT(error.message, HasSubstr("100 tokens per minute"));
  EXPECT_GT(error.retry_after.value_or(0), 500);
}

TEST(Gate, EveryAnswerHasAnIdOfTheClientsOrOfItsOwn) {
  Gate gate({}, 0xab);
  const auto id = [&](const std::string& sent) {
    return gate.HeadersFor(With({{"x-request-id", sent}})).at(0).second;
  };
  EXPECT_EQ(id("my-1.a:b_c"), "my-1.a:b_c");
  const std::string own = id("");
  EXPECT_THAT(own, StartsWith("req-000000ab"));
  EXPECT_NE(id(""), own);
  for (const std::string& bad : {std::string("a b"), std::string(129, 'a'), std::string("a\tb")}) {
    EXPECT_THAT(id(bad), StartsWith("req-"));
  }
}

TEST(Gate, OriginsThatAreNotNamedGetNothing) {
  const HttpRequest asks = {
      .method = "OPTIONS",
      .path = "/v1/chat/completions",
      .headers = {{"origin", "https://a.example"}, {"access-control-request-method", "POST"}}};
  HttpRequest other = asks;
  other.headers["origin"] = "https://a.example.org";
  HttpRequest no_preflight = asks;
  no_preflight.headers.erase("access-control-request-method");
  const auto names = [](const Headers& headers) {
    std::vector<std::string> names;
    for (const auto& [name, value] : headers) names.push_back(name);
    return names;
  };

  Gate off({}, 1);
  EXPECT_FALSE(off.Preflight(asks).has_value());
  EXPECT_THAT(names(off.HeadersFor(asks)), Each(Not(StartsWith("Access-Control"))));

  Gate on({"https://a.example"}, 1);
  ASSERT_TRUE(on.Preflight(asks).has_value());
  EXPECT_EQ(on.Preflight(asks)->status, 200);
  EXPECT_THAT(on.Preflight(asks)->headers,
              Contains(Pair("Access-Control-Allow-Headers", HasSubstr("Authorization"))));
  HttpRequest with_headers = asks;
  with_headers.headers["access-control-request-headers"] = "authorization,x-stainless-lang";
  EXPECT_THAT(on.Preflight(with_headers)->headers,
              Contains(Pair("Access-Control-Allow-Headers", "authorization,x-stainless-lang")));
  EXPECT_THAT(on.HeadersFor(asks),
              Contains(Pair("Access-Control-Allow-Origin", "https://a.example")));
  EXPECT_THAT(on.HeadersFor(asks), Contains(Pair("Vary", "Origin")));
  // Without CORS headers in the answer, the browser refuses the page.
  EXPECT_THAT(on.Preflight(other)->headers, IsEmpty());
  EXPECT_FALSE(on.Preflight(no_preflight).has_value());
  EXPECT_THAT(names(on.HeadersFor(other)), Each(Not(StartsWith("Access-Control"))));
  EXPECT_THAT(names(on.HeadersFor(asks)), Each(Not("Access-Control-Allow-Credentials")));

  Gate all({"*"}, 1);
  EXPECT_TRUE(all.Preflight(other).has_value());
}

TEST(Gate, LocalhostMeansPagesOfThisMachineAtAnyPort) {
  const Gate gate({"localhost"}, 1);
  const auto allows = [&](const std::string& origin) {
    const HttpRequest asks = {
        .method = "OPTIONS",
        .path = "/completion",
        .headers = {{"origin", origin}, {"access-control-request-method", "POST"}}};
    return !gate.Preflight(asks)->headers.empty();
  };
  for (const char* origin :
       {"http://localhost", "http://localhost:8080", "https://localhost:8443", "http://127.0.0.1",
        "http://127.0.0.1:3000", "http://[::1]", "http://[::1]:3000"}) {
    EXPECT_TRUE(allows(origin)) << origin;
  }
  for (const char* origin :
       {"http://evil.com", "http://notlocalhost", "http://localhost.evil.com", "localhost", "null",
        "http://localhost:", "http://localhost:80.evil.com", "http://127.0.0.1.evil.com",
        "http://[::1].evil.com", "http://[::1", "ftp://localhost", "http://user@localhost"}) {
    EXPECT_FALSE(allows(origin)) << origin;
  }
}

class KeptReply final : public Reply {
 public:
  void Send(HttpAnswer answer) override { sent = std::move(answer); }
  void Stream(HttpAnswer answer, std::function<std::string()> take) override {
    sent = std::move(answer);
    sent.body = take();
  }
  void NotifyData() override { ++pokes; }
  void EndStream() override { ended = true; }
  void OnDisconnect(std::function<void()> gone) override { gone(); }
  HttpAnswer sent;
  int pokes = 0;
  bool ended = false;
};

TEST(Gate, HeadersAreAddedToWhatIsSentAndAnAnswersOwnCount) {
  const auto kept = std::make_shared<KeptReply>();
  const auto reply = Gate::WithHeaders(kept, {{"X-Request-Id", "outer"}, {"A", "b"}});
  reply->Send({.body = "x", .headers = {{"X-Request-Id", "inner"}}});
  EXPECT_THAT(kept->sent.headers, Contains(Pair("X-Request-Id", "inner")));
  EXPECT_THAT(kept->sent.headers, Not(Contains(Pair("X-Request-Id", "outer"))));
  EXPECT_THAT(kept->sent.headers, Contains(Pair("A", "b")));
  reply->Stream({}, [] { return "piece"; });
  EXPECT_EQ(kept->sent.body, "piece");
  EXPECT_THAT(kept->sent.headers, Contains(Pair("X-Request-Id", "outer")));
  reply->NotifyData();
  reply->EndStream();
  bool gone = false;
  reply->OnDisconnect([&] { gone = true; });
  EXPECT_EQ(kept->pokes, 1);
  EXPECT_TRUE(kept->ended);
  EXPECT_TRUE(gone);
}

HttpRequest To(const std::string& method, const std::string& host, const std::string& origin) {
  HttpRequest request = {.method = method, .path = "/tokenize"};
  if (!host.empty()) request.headers.emplace("host", host);
  if (!origin.empty()) request.headers.emplace("origin", origin);
  return request;
}

TEST(Gate, WithoutKeysHostsAndOriginsOfOthersAreRefused) {
  Gate gate({"https://page.example"}, 1, std::vector<std::string>{"ebb.example"});
  const auto code = [&](const std::string& method, const std::string& host,
                        const std::string& origin) {
    HttpRequest request = To(method, host, origin);
    const auto error = gate.Admit(Access::kKey, &request);
    return error.has_value() ? error->code : "";
  };
  for (const char* host :
       {"", "localhost", "LOCALHOST:80", "127.0.0.1:8080", "[::1]:80", "[::1]", "ebb.example"}) {
    EXPECT_EQ(code("POST", host, ""), "") << host;
  }
  for (const char* host : {"evil.example", "localhost.evil.example", "[", "1.2.3"}) {
    EXPECT_EQ(code("GET", host, ""), "host_not_allowed") << host;
  }
  EXPECT_EQ(code("POST", "localhost:80", "http://localhost:80"), "");
  EXPECT_EQ(code("POST", "localhost:80", "https://page.example"), "");
  EXPECT_EQ(code("GET", "localhost:80", "https://evil.example"), "");
  EXPECT_EQ(code("DELETE", "localhost:80", "https://evil.example"), "origin_not_allowed");
  EXPECT_EQ(code("POST", "localhost:80", "http://localhost:81"), "origin_not_allowed");
  // A gate without `hosts` accepts any Host, because a proxy may use any name.
  HttpRequest request = To("POST", "evil.example", "");
  EXPECT_FALSE(Gate({}, 1).Admit(Access::kKey, &request).has_value());
}

}  // namespace
}  // namespace ebb::server
