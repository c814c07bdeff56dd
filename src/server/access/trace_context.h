// Headers by which clients and servers tell which requests belong together (W3C Trace Context,
// https://www.w3.org/TR/trace-context/). The server makes no spans: it hands the headers back.
#ifndef EBB_SERVER_ACCESS_TRACE_CONTEXT_H_
#define EBB_SERVER_ACCESS_TRACE_CONTEXT_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "src/server/http/http_server.h"

namespace ebb::server {

// Whether a text is a `traceparent`: version, trace id, parent id and flags, as in
// "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01". Later versions may have more behind
// it.
[[nodiscard]] bool IsTraceParent(std::string_view text);
// Whether a text is a `tracestate`: at most 32 pairs KEY=VALUE in at most 512 bytes.
[[nodiscard]] bool IsTraceState(std::string_view text);

// The value of a request's `traceparent`; empty: it has none, or one that is not valid.
[[nodiscard]] std::string_view TraceParentOf(const HttpRequest& request);
// The headers of the answer: `traceparent` and `tracestate` of the request, as far as they are
// valid. A `tracestate` without a valid `traceparent` means nothing.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> TraceHeaders(
    const HttpRequest& request);

}  // namespace ebb::server

#endif  // EBB_SERVER_ACCESS_TRACE_CONTEXT_H_
