// Converts the header of a request as Beast parsed it.
#ifndef EBB_SERVER_HTTP_REQUEST_HEAD_H_
#define EBB_SERVER_HTTP_REQUEST_HEAD_H_

#include <optional>

#include <boost/beast/http.hpp>

#include "src/server/http/http_server.h"

namespace ebb::server {

// Returns the request with its header fields and without its body. HEAD becomes GET. Returns
// nothing if ParseTarget() refuses the target.
[[nodiscard]] std::optional<HttpRequest> HeadOf(const boost::beast::http::request_header<>& header);
// Returns whether the body comes in a transfer coding other than chunked; this server decodes none.
[[nodiscard]] bool HasForeignTransferCoding(const boost::beast::http::request_header<>& header);

}  // namespace ebb::server

#endif  // EBB_SERVER_HTTP_REQUEST_HEAD_H_
