// Sends requests over HTTP and HTTPS through libcurl, which takes proxies from the environment
// (https_proxy, no_proxy, ...).
#ifndef EBB_APPS_PULL_NET_HTTP_CLIENT_H_
#define EBB_APPS_PULL_NET_HTTP_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/status.h"

namespace ebb::cli {

// HttpSettings configure the timeouts and retries of an HttpClient.
struct HttpSettings {
  int connect_seconds = 15;
  int stall_seconds = 30;  // a transfer below 1,000 bytes/s for so long has stalled
  int attempts = 5;        // for one request, or one file without a mebibyte of progress
  std::chrono::milliseconds first_wait{1000};      // before the second attempt; then doubled
  std::chrono::seconds most_wait{120};             // the largest Retry-After that is waited for
  std::function<void(std::string_view)> say = {};  // a line for the user; null: quiet
};

struct HttpRequest {
  std::string url;
  std::vector<std::string> headers = {};  // "Accept: application/json"
  // token is sent as "Authorization: Bearer" only to the scheme, host and port of `url`, never to a
  // server that a redirect leads to. Empty: no token.
  std::string token = {};
  uint64_t from = 0;  // first byte that is asked for
  // Ends the range that is asked for, if above 0. The transfer ends there even if the server
  // ignores ranges and sends the whole file. Get() then returns at most `until` bytes.
  uint64_t until = 0;
  std::string if_range = {};  // with `from`: the entity tag that the earlier bytes had
};

struct HttpAnswer {
  long status = 0;
  std::map<std::string, std::string> headers = {};  // names in lower case
  std::string body = {};                            // bytes that no sink took, at most kMostBody
  std::string url = {};                             // that answered, after redirects
  int64_t retry_after = 0;                          // seconds; 0: none was asked for

  // Returns the value of a header by its lower-case name, or an empty text if it is missing.
  [[nodiscard]] std::string Header(const std::string& name) const;
  [[nodiscard]] bool ok() const { return status == 200 || status == 206; }
};
inline constexpr size_t kMostBody = size_t{64} << 20;

// ContentRange is the range of a file that an answer of status 206 holds.
struct ContentRange {
  uint64_t first = 0;
  std::optional<uint64_t> total;  // bytes of the whole file
};
// Parses a header such as "bytes 100-199/200"; returns nothing for another form.
[[nodiscard]] std::optional<ContentRange> ParseContentRange(std::string_view text);
// Parses a text of digits alone.
[[nodiscard]] std::optional<uint64_t> ParseDigits(std::string_view text);

// HttpFailure is the reason why there is no answer, and records whether another attempt may help.
struct HttpFailure {
  enum class Kind {
    kFinal,        // another attempt would end the same way
    kUnreachable,  // no connection to the server
    kLost,         // the connection broke or stalled
  };
  Kind kind = Kind::kFinal;
  Status status = {};
};

// HttpClient sends requests through libcurl. Thread safety: one thread at a time.
class HttpClient {
 public:
  // Sink receives the bytes of the body once the answer's head is complete. If it returns an error,
  // the transfer ends with that error.
  using Sink = std::function<Status(const HttpAnswer& head, std::string_view bytes)>;

  explicit HttpClient(HttpSettings settings = {});
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  [[nodiscard]] const HttpSettings& settings() const { return settings_; }

  // Sends the request once, without retries. Follows at most ten redirects, to http and https, and
  // from https to https only. Passes the body to `sink` if the answer is ok(), else stores it in
  // HttpAnswer::body. Errors: kIo; kCancelled after Ctrl-C; the sink's.
  [[nodiscard]] Result<HttpAnswer, HttpFailure> Stream(const HttpRequest& request,
                                                       const Sink& sink);
  // Returns the answer to a request, whatever its status, with the body in memory. Waits and
  // retries after 429, 500, 502, 503, 504 and lost connections.
  [[nodiscard]] Result<HttpAnswer, HttpFailure> Get(const HttpRequest& request);

  // Returns whether another attempt may succeed after this HTTP status.
  [[nodiscard]] static bool IsTransient(long status);
  // Waits before attempt number `attempt` (2 or more): a time that doubles with each attempt, or
  // `retry_after` seconds if that is longer. Shows `reason` to the user. Errors: kIo if the server
  // asks for more than settings().most_wait; kCancelled after Ctrl-C.
  [[nodiscard]] Status Wait(int attempt, int64_t retry_after, std::string_view reason) const;

 private:
  struct Curl;
  [[nodiscard]] Result<HttpAnswer, HttpFailure> Perform(const HttpRequest& request,
                                                        const std::string& url, const Sink& sink);

  HttpSettings settings_;
  std::unique_ptr<Curl> curl_;  // null before the first request
};

// Returns "https://host:port" of a URL, in lower case and always with the port. Returns an empty
// text unless the URL is plain http or https: without a user name, without escapes before the path,
// without blanks or backslashes.
[[nodiscard]] std::string OriginOf(const std::string& url);
// Returns "host" or "host:port" of a URL, for messages.
[[nodiscard]] std::string HostOf(const std::string& url);
// Replaces the bytes that a path segment of a URL may not contain by %XX; keeps slashes.
[[nodiscard]] std::string EscapedPath(std::string_view path);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_NET_HTTP_CLIENT_H_
