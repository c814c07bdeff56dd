// Parses the target of a request line (RFC 9112, 3.2), as far as a server needs it.
#ifndef EBB_SERVER_HTTP_REQUEST_TARGET_H_
#define EBB_SERVER_HTTP_REQUEST_TARGET_H_

#include <optional>
#include <string>
#include <string_view>

namespace ebb::server {

struct RequestTarget {
  // Holds the path without the query. Percent-encoded letters, digits, '-', '.', '_' and '~' are
  // decoded, because they mean the same as the characters (RFC 3986, 6.2.2.2); all others stay
  // encoded.
  std::string path;
  // Holds the host and port of a target in absolute form, "localhost:8080" for
  // "http://localhost:8080/v1/models"; it overrides the header field Host. Empty for other forms.
  std::string authority = {};
};
// Parses `target`. Returns nullopt if it is in absolute form and lacks a host.
[[nodiscard]] std::optional<RequestTarget> ParseTarget(std::string_view target);

// Returns `path` with each run of '/' replaced by one, and without '/' at its end: "/v1/models" for
// "//v1/models/".
[[nodiscard]] std::string WithoutExtraSlashes(std::string_view path);

}  // namespace ebb::server

#endif  // EBB_SERVER_HTTP_REQUEST_TARGET_H_
