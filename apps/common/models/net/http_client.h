// Sends requests over HTTP and HTTPS. libcurl does, and takes proxies from the environment
// (https_proxy, no_proxy, ...).
#ifndef EBB_APPS_PULL_NET_HTTP_CLIENT_H_
#define EBB_APPS_PULL_NET_HTTP_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ebb/status.h"

namespace ebb::cli {

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
  // Sent as "Authorization: Bearer" to the scheme, host and port of `url` alone, whatever the
  // server redirects to. Empty: none.
  std::string token = {};
  uint64_t from = 0;          // first byte that is asked for
  std::string if_range = {};  // with `from`: the entity tag that the earlier bytes had
};

struct HttpAnswer {
  long status = 0;
  std::map<std::string, std::string> headers = {};  // names in lower case
  std::string body = {};                            // bytes that no sink took, at most kMostBody
  std::string url = {};                             // that answered, after redirects
  int64_t retry_after = 0;                          // seconds; 0: none was asked for

  // Empty where there is no such header.
  [[nodiscard]] std::string Header(const std::string& name) const;
  [[nodiscard]] bool ok() const { return status == 200 || status == 206; }
};
inline constexpr size_t kMostBody = size_t{64} << 20;

struct HttpFailure {
  enum class Kind {
    kFinal,        // another attempt would end the same way
    kUnreachable,  // no connection to the server
    kLost,         // the connection broke or stalled
  };
  Kind kind = Kind::kFinal;
  Status status = {};
};

// Thread safety: one thread at a time.
class HttpClient {
 public:
  // Takes the bytes of an answer whose head is complete. An error ends the transfer with it.
  using Sink = std::function<Status(const HttpAnswer& head, std::string_view bytes)>;

  explicit HttpClient(HttpSettings settings = {});
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  [[nodiscard]] const HttpSettings& settings() const { return settings_; }

  // One attempt. Follows at most ten redirects, to http and https, and from https to https only.
  // The sink gets the body of an answer that is ok(); others keep theirs. Errors: kIo; kCancelled
  // after Ctrl-C; the sink's.
  [[nodiscard]] Result<HttpAnswer, HttpFailure> Stream(const HttpRequest& request,
                                                       const Sink& sink);
  // A small answer, with whatever status. Waits and asks again after 429, 500, 502, 503, 504 and
  // lost connections.
  [[nodiscard]] Result<HttpAnswer, HttpFailure> Get(const HttpRequest& request);

  // Whether the status asks for another attempt.
  [[nodiscard]] static bool IsTransient(long status);
  // Waits before attempt number `attempt` (2 or more), as long as the answer asks for; `reason`
  // is said. Errors: kIo for a longer time than settings().most_wait; kCancelled.
  [[nodiscard]] Status Wait(int attempt, int64_t retry_after, std::string_view reason) const;

 private:
  struct Curl;
  [[nodiscard]] Result<HttpAnswer, HttpFailure> Perform(const HttpRequest& request,
                                                        const std::string& url, const Sink& sink);

  HttpSettings settings_;
  std::unique_ptr<Curl> curl_;  // null before the first request
};

// "https://host:port" of a URL, in lower case and with the port even where it is the usual one.
// Empty: not a plain URL of http or https, which has no user name, no escapes before the path, no
// blanks and no backslashes.
[[nodiscard]] std::string OriginOf(const std::string& url);
// "host" or "host:port", for messages.
[[nodiscard]] std::string HostOf(const std::string& url);
// The bytes that a path segment may not hold as they are, by %XX; slashes stay.
[[nodiscard]] std::string EscapedPath(std::string_view path);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_NET_HTTP_CLIENT_H_
