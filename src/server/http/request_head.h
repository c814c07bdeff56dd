// Converts the header of a request from Beast's type to an HttpRequest.
#ifndef EBB_SERVER_HTTP_REQUEST_HEAD_H_
#define EBB_SERVER_HTTP_REQUEST_HEAD_H_

#include <optional>

#include <boost/beast/http.hpp>

#include "src/server/http/http_server.h"

namespace ebb::server {

// Returns the request with its header fields, without a body. HEAD becomes GET. nullopt:
// ParseTarget() refuses the target.
[[nodiscard]] std::optional<HttpRequest> HeadOf(const boost::beast::http::request_header<>& header);
// Returns whether the body has a transfer coding other than chunked, which the server cannot
// decode.
[[nodiscard]] bool HasForeignTransferCoding(const boost::beast::http::request_header<>& header);

}  // namespace ebb::server

#endif  // EBB_SERVER_HTTP_REQUEST_HEAD_H_
