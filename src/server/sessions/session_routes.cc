#include "src/server/sessions/session_routes.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "src/server/api/base/json_fields.h"

namespace ebb::server {
namespace {

constexpr std::string_view kSessions = "/v1/sessions";

// Returns the id of the copy that the body of a fork request names.
ApiResult<std::string> CopyId(const HttpRequest& request) {
  if (!IsJson(request.content_type)) return OtherContent();
  EBB_ASSIGN_OR_RETURN(const Json body, ParseObject(request.body));
  std::optional<ApiError> error;
  JsonFields fields(body, "", &error);
  const auto id = fields.Text("id");
  if (!id.has_value()) {
    fields.Fail("id", "expected the id of the copy", "missing_field");
  } else if (!store::IsSessionId(*id)) {
    fields.Fail("id", "expected 1 to 64 letters, digits, '-', '_' and ':'");
  }
  if (error.has_value()) return *std::move(error);
  return *id;
}

}  // namespace

void AddSessionRoutes(SessionKeeper* keeper, std::vector<Route>* routes) {
  using Name = store::SessionName;
  using Act = std::function<void(const Name&, const HttpRequest&, SessionKeeper::Answered)>;
  const auto add = [&](const char* method, const char* pattern, Act act) {
    const bool has_id = std::string_view(pattern) != kSessions;
    const auto handle = [keeper, has_id, act = std::move(act)](const HttpRequest& request,
                                                               const std::shared_ptr<Reply>& reply,
                                                               const std::string& id) {
      if (keeper == nullptr) {
        return reply->Send(
            ErrorAnswer({.status = 501,
                         .message = "this server keeps no sessions; start it with --sessions",
                         .code = "unsupported_endpoint"}));
      }
      if (has_id && !store::IsSessionId(id)) {
        return reply->Send(
            ErrorAnswer({.status = 404,
                         .message = fmt::format("there is nothing at {}", request.path),
                         .code = "not_found"}));
      }
      act({TenantOf(request.key), id}, request,
          [reply](HttpAnswer answer) { reply->Send(std::move(answer)); });
    };
    routes->push_back({method, pattern, Access::kKey, handle});
  };
  // Makes an action that calls a member of the keeper with the session's name.
  const auto named = [keeper](void (SessionKeeper::*member)(const Name&, SessionKeeper::Answered)) {
    return [keeper, member](const Name& name, const HttpRequest&, SessionKeeper::Answered then) {
      (keeper->*member)(name, std::move(then));
    };
  };
  add("GET", "/v1/sessions", [keeper](const Name& name, const HttpRequest&, auto then) {
    keeper->List(name.tenant, std::move(then));
  });
  add("GET", "/v1/sessions/*", named(&SessionKeeper::Describe));
  add("DELETE", "/v1/sessions/*", named(&SessionKeeper::Delete));
  add("GET", "/v1/sessions/*/messages", named(&SessionKeeper::Messages));
  add("POST", "/v1/sessions/*/park", named(&SessionKeeper::Park));
  add("GET", "/v1/sessions/*/tokens/*",
      [keeper](const Name& name, const HttpRequest& request, auto then) {
        keeper->Explain(name, request.path, std::move(then));
      });
  add("POST", "/v1/sessions/*/fork",
      [keeper](const Name& name, const HttpRequest& request, auto then) {
        const ApiResult<std::string> copy = CopyId(request);
        copy.ok() ? keeper->Fork(name, *copy, std::move(then)) : then(ErrorAnswer(copy.error()));
      });
}

}  // namespace ebb::server
