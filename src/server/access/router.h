// Router calls the handler of a request by a table of methods and paths, and answers requests that
// match no route.
#ifndef EBB_SERVER_ACCESS_ROUTER_H_
#define EBB_SERVER_ACCESS_ROUTER_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/server/access/gate.h"
#include "src/server/http/http_server.h"

namespace ebb::server {

struct Route {
  std::string method;
  // Holds the path. "*" matches one non-empty segment, "**" at the end matches the rest. The first
  // matching route counts, so that a literal path must come before a pattern that matches it too.
  std::string pattern;
  Access access = Access::kKey;
  // Answers a matching request. `part` is the decoded text that the first "*" or "**" matches.
  std::function<void(HttpRequest request, std::shared_ptr<Reply> reply, std::string part)> handle;
};

class Router {
 public:
  explicit Router(std::vector<Route> routes) : routes_(std::move(routes)) {}

  // Returns the access of the first route that matches the request's method and path; else of the
  // first that matches its path; else kKey.
  [[nodiscard]] Access AccessTo(const HttpRequest& request) const;
  // Calls the first route that matches the request's method and path; else answers 405 (the path
  // has other methods) or 404.
  void Handle(HttpRequest request, std::shared_ptr<Reply> reply) const;

 private:
  const std::vector<Route> routes_;
};

// Returns whether `path` matches `pattern`, and sets `part` as for Route::handle.
[[nodiscard]] bool MatchesPattern(std::string_view pattern, std::string_view path,
                                  std::string* part);

}  // namespace ebb::server

#endif  // EBB_SERVER_ACCESS_ROUTER_H_
