#include "src/server/access/router.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace ebb::server {
namespace {

class KeptAnswer final : public Reply {
 public:
  explicit KeptAnswer(HttpAnswer* kept) : kept_(*kept) {}
  void Send(HttpAnswer answer) override { kept_ = std::move(answer); }
  void Stream(HttpAnswer, std::function<std::string()>) override {}
  void NotifyData() override {}
  void EndStream() override {}
  void OnDisconnect(std::function<void()>) override {}

 private:
  HttpAnswer& kept_;
};

TEST(MatchesPattern, StarsStandForParts) {
  const std::tuple<const char*, const char*, const char*> matches[] = {
      {"/", "/", ""},
      {"/v1/models", "/v1/models", ""},
      {"/v1/models/**", "/v1/models/org/name", "org/name"},
      {"/v1/models/**", "/v1/models/a%2Fb", "a/b"},
      {"/s/*", "/s/x%3A1", "x:1"},
      {"/s/*/fork", "/s/x/fork", "x"},
      {"/s/*/fork/*", "/s/x/fork/y", "x"}};
  for (const auto& [pattern, path, part] : matches) {
    std::string found;
    EXPECT_TRUE(MatchesPattern(pattern, path, &found)) << pattern << " " << path;
    EXPECT_EQ(found, part);
  }
  const std::pair<const char*, const char*> others[] = {{"/", "/x"},
                                                        {"/v1/models", "/v1/models/"},
                                                        {"/v1/models/**", "/v1/models/"},
                                                        {"/s/*", "/s/"},
                                                        {"/s/*", "/s/x/"},
                                                        {"/s/*", "/s/x/y"},
                                                        {"/s/*/fork", "/s//fork"},
                                                        {"/s/*/fork", "/s/x/park"}};
  for (const auto& [pattern, path] : others) {
    std::string found;
    EXPECT_FALSE(MatchesPattern(pattern, path, &found)) << pattern << " " << path;
  }
}

TEST(Router, TakesTheFirstRowOfItsMethodAndPath) {
  const auto says = [](const char* text) {
    return [text](const HttpRequest&, const std::shared_ptr<Reply>& reply,
                  const std::string& part) { reply->Send({.body = text + part}); };
  };
  const Router router({{"GET", "/a/b", Access::kOpen, says("b")},
                       {"GET", "/a/*", Access::kAdmin, says("of ")},
                       {"DELETE", "/a/*", Access::kKey, says("deleted ")}});
  const auto answer = [&](const char* method, const char* path) {
    HttpAnswer kept;
    router.Handle({.method = method, .path = path}, std::make_shared<KeptAnswer>(&kept));
    return kept;
  };
  EXPECT_EQ(answer("GET", "/a/b").body, "b");
  EXPECT_EQ(answer("GET", "/a/c").body, "of c");
  EXPECT_EQ(answer("DELETE", "/a/b").body, "deleted b");
  const HttpAnswer wrong = answer("PUT", "/a/c");
  EXPECT_EQ(wrong.status, 405);
  EXPECT_EQ(wrong.headers.back().second, "GET, DELETE");
  EXPECT_EQ(answer("GET", "/a/b/c").status, 404);
  EXPECT_NE(answer("GET", "//a/b/").body.find("there is nothing at //a/b/; expected /a/b\""),
            std::string::npos);
  for (const char* path : {"/v1", "/v1/", "/api/tags", "/api/chat"}) {
    const HttpAnswer lost = answer("GET", path);
    EXPECT_EQ(lost.status, 404) << path;
    EXPECT_NE(lost.body.find("the base URL"), std::string::npos) << path << ": " << lost.body;
  }
  EXPECT_NE(answer("POST", "/api/chat").body.find("no Ollama API"), std::string::npos);
  const auto access = [&](const char* method, const char* path) {
    return router.AccessTo({.method = method, .path = path});
  };
  EXPECT_EQ(access("GET", "/a/b"), Access::kOpen);
  EXPECT_EQ(access("GET", "/a/c"), Access::kAdmin);
  EXPECT_EQ(access("DELETE", "/a/c"), Access::kKey);
  EXPECT_EQ(access("PUT", "/a/c"), Access::kAdmin);
  EXPECT_EQ(access("GET", "/nothing"), Access::kKey);
}

}  // namespace
}  // namespace ebb::server
