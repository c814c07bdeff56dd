// Checks the headers of W3C Trace Context (https://www.w3.org/TR/trace-context/), by which clients
// and servers correlate requests. The server makes no spans: it returns the headers to the client
// and logs `traceparent`.
#ifndef EBB_SERVER_ACCESS_TRACE_CONTEXT_H_
#define EBB_SERVER_ACCESS_TRACE_CONTEXT_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/server/http/http_server.h"

namespace ebb::server {

// Returns whether `text` is a `traceparent`: version, trace id, parent id and flags, as in
// "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01". Versions above 00 may append more.
[[nodiscard]] bool IsTraceParent(std::string_view text);
// Returns whether `text` is a `tracestate`: at most 32 pairs KEY=VALUE in at most 512 bytes.
[[nodiscard]] bool IsTraceState(std::string_view text);

// Returns the request's `traceparent`; empty if it has none or an invalid one.
[[nodiscard]] std::string_view TraceParentOf(const HttpRequest& request);
// Returns the headers that the answer repeats from the request: valid `traceparent` and
// `tracestate`. Without a valid `traceparent` it returns none, because `tracestate` alone has no
// meaning.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> TraceHeaders(
    const HttpRequest& request);

}  // namespace ebb::server

#endif  // EBB_SERVER_ACCESS_TRACE_CONTEXT_H_
