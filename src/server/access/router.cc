#include "src/server/access/router.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/server/api/base/api_error.h"
#include "src/server/http/request_target.h"

namespace ebb::server {

bool MatchesPattern(std::string_view pattern, std::string_view path, std::string* part) {
  for (bool has_part = false;;) {
    const size_t star = pattern.find('*');
    const std::string_view text = pattern.substr(0, star);
    if (star == std::string_view::npos) return path == text;
    if (!path.starts_with(text)) return false;
    path.remove_prefix(text.size());
    if (pattern.substr(star) == "**") {
      *part = DecodedPart(path);
      return !path.empty() && path.front() != '/';
    }
    const std::string_view segment = path.substr(0, path.find('/'));
    if (segment.empty()) return false;
    if (!std::exchange(has_part, true)) *part = DecodedPart(segment);
    path.remove_prefix(segment.size());
    pattern.remove_prefix(star + 1);
  }
}

Access Router::AccessTo(const HttpRequest& request) const {
  std::string part;
  const Route* of_path = nullptr;
  for (const Route& route : routes_) {
    if (!MatchesPattern(route.pattern, request.path, &part)) continue;
    if (route.method == request.method) return route.access;
    if (of_path == nullptr) of_path = &route;
  }
  return of_path == nullptr ? Access::kKey : of_path->access;
}

void Router::Handle(HttpRequest request, std::shared_ptr<Reply> reply) const {
  std::vector<std::string_view> methods;
  std::string part;
  for (const Route& route : routes_) {
    if (!MatchesPattern(route.pattern, request.path, &part)) continue;
    if (route.method == request.method) {
      return route.handle(std::move(request), std::move(reply), std::move(part));
    }
    if (std::ranges::find(methods, route.method) == methods.end()) methods.push_back(route.method);
  }
  if (!methods.empty()) {
    return reply->Send(
        WrongMethodAnswer(request.path, fmt::format("{}", fmt::join(methods, ", "))));
  }
  std::string message = fmt::format("there is nothing at {}", request.path);
  const std::string plain = WithoutExtraSlashes(request.path);
  const bool has_plain =
      plain != request.path && std::ranges::find(routes_, plain, &Route::pattern) != routes_.end();
  if (has_plain) {
    message += fmt::format("; expected {}", plain);
  } else if (plain == "/v1") {
    message += "; it is the base URL, and the model answers at /v1/chat/completions";
  } else if (plain.starts_with("/api/")) {
    message +=
        "; this server has no Ollama API: use a client of OpenAI's API with the base URL /v1";
  }
  reply->Send(ErrorAnswer({.status = 404, .message = std::move(message), .code = "not_found"}));
}

}  // namespace ebb::server
