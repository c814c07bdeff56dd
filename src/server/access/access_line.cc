#include "src/server/access/access_line.h"

#include <algorithm>

#include "src/server/access/trace_context.h"

namespace ebb::server {

AccessLine::AccessLine(std::shared_ptr<AccessLog> log, const HttpRequest& request)
    : log_(std::move(log)) {
  constexpr int kClientHasGone = 499;
  record_.time = std::chrono::system_clock::now();
  record_.remote = request.remote;
  record_.method = request.method;
  record_.path = request.path;
  record_.status = kClientHasGone;
  record_.traceparent = TraceParentOf(request);
}

void AccessLine::OnAnswer(const HttpAnswer& answer) {
  record_.status = answer.status;
  record_.error = answer.detail;
  const auto id = std::ranges::find(answer.headers, "X-Request-Id",
                                    &std::pair<std::string, std::string>::first);
  if (id != answer.headers.end()) record_.request_id = id->second;
}

void AccessLine::OnEnd(const HttpTraffic& traffic) {
  record_.request_bytes = traffic.body_bytes;
  record_.response_bytes = traffic.sent_bytes;
  record_.is_complete = traffic.is_complete;
  record_.total_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count();
}

void AccessLine::AddJob(const JobEnd& end, bool is_first) {
  if (!record_.usage.has_value()) record_.usage.emplace();
  record_.usage->Add(end, is_first);
}

}  // namespace ebb::server
