// The parsed header of a request.
#ifndef EBB_SERVER_HTTP_REQUEST_HEAD_H_
#define EBB_SERVER_HTTP_REQUEST_HEAD_H_

#include <optional>

#include <boost/beast/http.hpp>

#include "src/server/http/http_server.h"

namespace ebb::server {

// Reads the header of a request. Nothing: its target is none.
[[nodiscard]] std::optional<HttpRequest> HeadOf(const boost::beast::http::request_header<>& header);
// Whether a body comes in a transfer coding besides chunks, which this server does not decode.
[[nodiscard]] bool HasForeignTransferCoding(const boost::beast::http::request_header<>& header);

}  // namespace ebb::server

#endif  // EBB_SERVER_HTTP_REQUEST_HEAD_H_
