#include "src/server/chat/chat_page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace ebb::server {
namespace {

using testing::HasSubstr;
using testing::Not;

class KeptReply final : public Reply {
 public:
  explicit KeptReply(HttpAnswer* kept) : kept_(kept) {}
  void Send(HttpAnswer answer) override { *kept_ = std::move(answer); }
  void Stream(HttpAnswer, std::function<std::string()>) override {}
  void NotifyData() override {}
  void EndStream() override {}
  void OnDisconnect(std::function<void()>) override {}

 private:
  HttpAnswer* const kept_;
};

HttpAnswer GetPage(const std::string& path, const std::string& known_tag = "",
                   const ChatTabs& tabs = {}) {
  HttpAnswer answer;
  HttpRequest request = {.method = "GET", .path = path};
  if (!known_tag.empty()) request.headers["if-none-match"] = known_tag;
  std::vector<Route> routes;
  AddChatRoutes(tabs, &routes);
  Router(std::move(routes)).Handle(std::move(request), std::make_shared<KeptReply>(&answer));
  return answer;
}

std::string HeaderOf(const HttpAnswer& answer, const std::string& name) {
  for (const auto& [key, value] : answer.headers) {
    if (key == name) return value;
  }
  return "";
}

TEST(ChatPage, HasItsScriptsLibrariesAndFonts) {
  for (const auto& [path, type] : {std::pair{"/", "text/html; charset=utf-8"},
                                   {"/dashboard", "text/html; charset=utf-8"},
                                   {"/chat/app.js", "text/javascript; charset=utf-8"},
                                   {"/chat/chat.css", "text/css; charset=utf-8"},
                                   {"/chat/icon.svg", "image/svg+xml"},
                                   {"/chat/lib/marked.js", "text/javascript; charset=utf-8"},
                                   {"/chat/lib/highlight.js", "text/javascript; charset=utf-8"},
                                   {"/chat/lib/katex.js", "text/javascript; charset=utf-8"},
                                   {"/chat/lib/katex.css", "text/css; charset=utf-8"},
                                   {"/chat/lib/fonts/KaTeX_Main-Regular.woff2", "font/woff2"}}) {
    const HttpAnswer answer = GetPage(path);
    EXPECT_EQ(answer.status, 200) << path;
    EXPECT_EQ(answer.content_type, type) << path;
    EXPECT_GT(answer.body.size(), 200u) << path;
    EXPECT_EQ(HeaderOf(answer, "X-Content-Type-Options"), "nosniff") << path;
  }
  EXPECT_EQ(GetPage("/chat/nothing.js").status, 404);
  EXPECT_EQ(GetPage("/chat/").status, 404);
}

TEST(ChatPage, RunsNothingButItsOwnFiles) {
  const HttpAnswer page = GetPage("/");
  EXPECT_THAT(HeaderOf(page, "Content-Security-Policy"), HasSubstr("default-src 'self';"));
  EXPECT_THAT(HeaderOf(page, "Content-Security-Policy"), Not(HasSubstr("unsafe")));
  EXPECT_THAT(page.body, Not(HasSubstr("<script>")));
  EXPECT_THAT(page.body, Not(HasSubstr("<style")));
  EXPECT_THAT(page.body, Not(HasSubstr(" style=")));
  EXPECT_THAT(page.body, Not(HasSubstr("://")));
  for (const char* script : {"answer", "app", "api", "compare", "composer", "conversation", "dom",
                             "files", "list", "markdown", "memory", "messages", "server",
                             "settings", "store", "tint", "transfer", "why"}) {
    const std::string text = GetPage(std::string("/chat/") + script + ".js").body;
    EXPECT_GT(text.size(), 500u) << script;
    EXPECT_EQ(text.find("innerHTML"), std::string::npos) << script;
    EXPECT_EQ(text.find("eval("), std::string::npos) << script;
  }
}

TEST(ChatPage, AFileThatTheBrowserHasIsNotSentAgain) {
  const std::string tag = HeaderOf(GetPage("/chat/app.js"), "ETag");
  EXPECT_FALSE(tag.empty());
  const HttpAnswer again = GetPage("/chat/app.js", tag);
  EXPECT_EQ(again.status, 304);
  EXPECT_EQ(again.body, "");
  EXPECT_EQ(GetPage("/chat/api.js", tag).status, 200);
}

TEST(ChatPage, HasTheTabsThatTheServerShows) {
  const ChatTabs chat = {.server = false}, server = {.chat = false};
  EXPECT_EQ(GetPage("/", "", chat).status, 200);
  EXPECT_EQ(GetPage("/dashboard", "", chat).status, 404);
  EXPECT_EQ(GetPage("/", "", server).status, 307);
  EXPECT_EQ(HeaderOf(GetPage("/", "", server), "Location"), "/dashboard");
  EXPECT_EQ(GetPage("/dashboard", "", server).body, GetPage("/", "", chat).body);
  EXPECT_EQ(GetPage("/chat/server.js", "", server).status, 200);
}

}  // namespace
}  // namespace ebb::server
