// Checks the origins of web pages and the host names that an operator allows by options.
#ifndef EBB_SERVER_ACCESS_ORIGIN_H_
#define EBB_SERVER_ACCESS_ORIGIN_H_

#include <string_view>

#include "ebb/status.h"

namespace ebb::server {

// Checks an origin whose pages may send requests: SCHEME://HOST[:PORT] exactly as browsers send it,
// "null", "localhost" or "*". Errors: InvalidArgument (any other text: it would equal no origin
// that a browser sends).
[[nodiscard]] Status CheckOrigin(std::string_view text);
// Checks a host name under which clients may call the server: without scheme, port and path.
// Errors: InvalidArgument (any other text).
[[nodiscard]] Status CheckHostName(std::string_view text);

}  // namespace ebb::server

#endif  // EBB_SERVER_ACCESS_ORIGIN_H_
