// The routes below /v1/sessions.
#ifndef EBB_SERVER_SESSIONS_SESSION_ROUTES_H_
#define EBB_SERVER_SESSIONS_SESSION_ROUTES_H_

#include <vector>

#include "src/server/access/router.h"
#include "src/server/sessions/session_keeper.h"

namespace ebb::server {

// keeper: null where the server keeps no sessions, which its answers say then. It outlives the
// routes.
void AddSessionRoutes(SessionKeeper* keeper, std::vector<Route>* routes);

}  // namespace ebb::server

#endif  // EBB_SERVER_SESSIONS_SESSION_ROUTES_H_
