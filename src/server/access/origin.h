// Checks origins of pages and names of hosts that operators give a server to trust.
#ifndef EBB_SERVER_ACCESS_ORIGIN_H_
#define EBB_SERVER_ACCESS_ORIGIN_H_

#include <string_view>

#include "ebb/status.h"

namespace ebb::server {

// Checks an origin whose pages may ask: SCHEME://HOST[:PORT] exactly as browsers send it, "null",
// "localhost" or "*". Errors: InvalidArgument: another text, which would be equal to the origin of
// no page.
[[nodiscard]] Status CheckOrigin(std::string_view text);
// Checks a name by which a server may be called: a host without scheme, port and path. Errors:
// InvalidArgument.
[[nodiscard]] Status CheckHostName(std::string_view text);

}  // namespace ebb::server

#endif  // EBB_SERVER_ACCESS_ORIGIN_H_
