#include "src/server/sessions/session_routes.h"

#include <optional>

#include <fmt/format.h>

#include "src/server/api/json_fields.h"

namespace ebb::server {
namespace {

constexpr std::string_view kSessions = "/v1/sessions";

// The id of the copy that a body names.
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

bool IsSessionPath(std::string_view path) {
  return path == kSessions || path.starts_with("/v1/sessions/");
}

void RouteSession(SessionKeeper* keeper, const std::string& tenant, const HttpRequest& request,
                  const std::shared_ptr<Reply>& reply) {
  const auto fail = [&](const ApiError& error) { reply->Send(ErrorAnswer(error)); };
  const auto send = [reply](HttpAnswer answer) { reply->Send(std::move(answer)); };
  if (keeper == nullptr) {
    return fail({.status = 501,
                 .message = "this server keeps no sessions; start it with --sessions",
                 .code = "unsupported_endpoint"});
  }
  const std::string& method = request.method;
  if (request.path == kSessions) {
    return method == "GET" ? keeper->List(tenant, send)
                           : send(WrongMethodAnswer(request.path, "GET"));
  }
  const std::string_view rest = std::string_view(request.path).substr(kSessions.size() + 1);
  const size_t slash = rest.find('/');
  const store::SessionName name = {tenant, DecodedPart(rest.substr(0, slash))};
  const std::string_view verb = slash == std::string_view::npos ? "" : rest.substr(slash + 1);
  if (!store::IsSessionId(name.id) ||
      (!verb.empty() && verb != "fork" && verb != "park" && verb != "messages")) {
    return fail({.status = 404,
                 .message = fmt::format("there is nothing at {}", request.path),
                 .code = "not_found"});
  }
  if (verb.empty()) {
    if (method == "GET") return keeper->Describe(name, send);
    if (method == "DELETE") return keeper->Delete(name, send);
    return send(WrongMethodAnswer(request.path, "GET, DELETE"));
  }
  if (verb == "messages") {
    return method == "GET" ? keeper->Messages(name, send)
                           : send(WrongMethodAnswer(request.path, "GET"));
  }
  if (method != "POST") return send(WrongMethodAnswer(request.path, "POST"));
  if (verb == "park") return keeper->Park(name, send);
  const ApiResult<std::string> copy = CopyId(request);
  if (!copy.ok()) return fail(copy.error());
  keeper->Fork(name, *copy, send);
}

}  // namespace ebb::server
