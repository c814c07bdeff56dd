// The table of routes: finds the row of a request, and answers where there is none.
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
  // A path; "*" stands for one part between slashes, which is not empty, and "**" at the end for
  // all that follows. A row whose path is spelled out comes before those that match it, too.
  std::string pattern;
  Access access = Access::kKey;
  // part: what stands in the path for the first "*", decoded, or for "**".
  std::function<void(HttpRequest request, std::shared_ptr<Reply> reply, std::string part)> handle;
};

class Router {
 public:
  explicit Router(std::vector<Route> routes) : routes_(std::move(routes)) {}

  // Returns the access of the first row that takes the request, else of the first for its path,
  // else kKey.
  [[nodiscard]] Access AccessTo(const HttpRequest& request) const;
  // Answers by the first row that takes the request; else with 405 (its path takes other methods)
  // or 404.
  void Handle(HttpRequest request, std::shared_ptr<Reply> reply) const;

 private:
  const std::vector<Route> routes_;
};

// Returns whether `path` is one of `pattern`, and sets `part`.
[[nodiscard]] bool MatchesPattern(std::string_view pattern, std::string_view path,
                                  std::string* part);

}  // namespace ebb::server

#endif  // EBB_SERVER_ACCESS_ROUTER_H_
