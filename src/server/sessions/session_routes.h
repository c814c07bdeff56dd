// The routes below /v1/sessions.
#ifndef EBB_SERVER_SESSIONS_SESSION_ROUTES_H_
#define EBB_SERVER_SESSIONS_SESSION_ROUTES_H_

#include <memory>
#include <string>
#include <string_view>

#include "src/server/http/http_server.h"
#include "src/server/sessions/session_keeper.h"

namespace ebb::server {

[[nodiscard]] bool IsSessionPath(std::string_view path);
// `keeper` is null where the server keeps no sessions. REQUIRES: IsSessionPath(request.path).
void RouteSession(SessionKeeper* keeper, const std::string& tenant, const HttpRequest& request,
                  const std::shared_ptr<Reply>& reply);

}  // namespace ebb::server

#endif  // EBB_SERVER_SESSIONS_SESSION_ROUTES_H_
