#include "src/server/http/request_head.h"

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <boost/beast/core/string.hpp>

#include "src/server/http/request_target.h"

namespace ebb::server {
namespace {

namespace http = boost::beast::http;

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

// Returns the header fields by name in lower case. If a name is repeated, the first field counts,
// except for Trace Context, whose fields are joined: `tracestate` may be spread over several
// fields, and two `traceparent` must not pass as one valid id.
std::map<std::string, std::string> FieldsOf(const http::request_header<>& header) {
  std::map<std::string, std::string> fields;
  for (const auto& field : header) {
    std::string name(View(field.name_string()));
    std::ranges::transform(name, name.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c; });
    const std::string_view value = View(field.value());
    const auto [place, is_new] = fields.try_emplace(std::move(name), value);
    const bool is_joined = place->first == "traceparent" || place->first == "tracestate";
    if (is_new || !is_joined) continue;
    place->second.append(",").append(value);
  }
  return fields;
}

}  // namespace

std::optional<HttpRequest> HeadOf(const http::request_header<>& header) {
  std::optional<RequestTarget> target = ParseTarget(View(header.target()));
  if (!target.has_value()) return std::nullopt;
  const bool head_only = header.method() == http::verb::head;
  HttpRequest request = {.method = head_only ? "GET" : std::string(View(header.method_string())),
                         .path = std::move(target->path),
                         .content_type = std::string(View(header[http::field::content_type])),
                         .headers = FieldsOf(header)};
  // RFC 9112, 3.2.2: the host of a target in absolute form replaces the field Host.
  if (!target->authority.empty()) request.headers["host"] = std::move(target->authority);
  return request;
}

bool HasForeignTransferCoding(const http::request_header<>& header) {
  const http::token_list codings(header[http::field::transfer_encoding]);
  return std::ranges::any_of(
      codings, [](const auto& coding) { return !boost::beast::iequals(coding, "chunked"); });
}

}  // namespace ebb::server
