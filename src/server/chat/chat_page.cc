#include "src/server/chat/chat_page.h"

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace ebb::server {

// Made by the build out of files; see cmake/targets.cmake.
extern const std::span<const ChatFile> kChatFiles;

namespace {

std::string_view ContentTypeOf(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kTypes[] = {
      {".html", "text/html; charset=utf-8"},
      {".js", "text/javascript; charset=utf-8"},
      {".css", "text/css; charset=utf-8"},
      {".svg", "image/svg+xml"},
      {".woff2", "font/woff2"}};
  for (const auto& [ending, type] : kTypes) {
    if (name.ends_with(ending)) return type;
  }
  return "application/octet-stream";
}

void SendFile(const ChatFile& file, const HttpRequest& request, Reply* reply) {
  const std::string tag = fmt::format("\"{:016x}\"", std::hash<std::string_view>()(file.bytes));
  HttpAnswer answer = {.content_type = std::string(ContentTypeOf(file.name)),
                       .headers = {{"ETag", tag}, {"Cache-Control", "no-cache"}}};
  if (request.header("if-none-match") == tag) {
    answer.status = 304;
    return reply->Send(std::move(answer));
  }
  answer.body = file.bytes;
  // Scripts and styles come from this server alone, none stands in the page itself, and no script
  // can make elements of text. KaTeX sets the properties of styles from its script, which this
  // allows.
  answer.headers.emplace_back("Content-Security-Policy",
                              "default-src 'self'; object-src 'none'; base-uri 'none'; "
                              "form-action 'none'; frame-ancestors 'none'; "
                              "require-trusted-types-for 'script'; trusted-types ebb");
  answer.headers.emplace_back("X-Content-Type-Options", "nosniff");
  answer.headers.emplace_back("Referrer-Policy", "no-referrer");
  reply->Send(std::move(answer));
}

}  // namespace

void AddChatRoutes(const ChatTabs& tabs, std::vector<Route>* routes) {
  const auto add = [&](std::string path, const ChatFile& file) {
    routes->push_back({"GET", std::move(path), Access::kOpen,
                       [&file](const HttpRequest& request, const std::shared_ptr<Reply>& reply,
                               const std::string&) { SendFile(file, request, reply.get()); }});
  };
  for (const ChatFile& file : kChatFiles) {
    if (file.name != "chat.html") {
      add(fmt::format("/chat/{}", file.name), file);
      continue;
    }
    if (tabs.chat) add("/", file);
    if (tabs.server) add("/dashboard", file);
  }
  if (tabs.chat) return;
  routes->push_back(
      {"GET", "/", Access::kOpen,
       [](const HttpRequest&, const std::shared_ptr<Reply>& reply, const std::string&) {
         reply->Send({.status = 307, .headers = {{"Location", "/dashboard"}}});
       }});
}

}  // namespace ebb::server
