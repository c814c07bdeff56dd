// The target of a request line (RFC 9112, 3.2), as far as a server needs it.
#ifndef EBB_SERVER_HTTP_REQUEST_TARGET_H_
#define EBB_SERVER_HTTP_REQUEST_TARGET_H_

#include <optional>
#include <string>
#include <string_view>

namespace ebb::server {

struct RequestTarget {
  // Without the query. Percent-encoded letters, digits, '-', '.', '_' and '~' are decoded, since
  // they mean the same as the characters themselves (RFC 3986, 6.2.2.2); others stay encoded.
  std::string path;
  // The host of the absolute form, "http://localhost:8080/v1/models", which counts in place of the
  // header Host; empty: the target has another form.
  std::string authority = {};
};
// Nothing: an absolute form without a host.
[[nodiscard]] std::optional<RequestTarget> ParseTarget(std::string_view target);

// `path` with one '/' wherever it has several, and without those at its end: "/v1/models" for
// "//v1/models/".
[[nodiscard]] std::string WithoutExtraSlashes(std::string_view path);

}  // namespace ebb::server

#endif  // EBB_SERVER_HTTP_REQUEST_TARGET_H_
