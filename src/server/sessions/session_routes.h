// Adds the HTTP routes of sessions, below /v1/sessions.
#ifndef EBB_SERVER_SESSIONS_SESSION_ROUTES_H_
#define EBB_SERVER_SESSIONS_SESSION_ROUTES_H_

#include <vector>

#include "src/server/access/router.h"
#include "src/server/sessions/session_keeper.h"

namespace ebb::server {

// Adds the routes below /v1/sessions to `routes`. If `keeper` is null, the server keeps no
// sessions, and the routes answer 501. REQUIRES: the keeper outlives the routes.
void AddSessionRoutes(SessionKeeper* keeper, std::vector<Route>* routes);

}  // namespace ebb::server

#endif  // EBB_SERVER_SESSIONS_SESSION_ROUTES_H_
