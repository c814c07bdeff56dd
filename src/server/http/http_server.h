// HttpServer serves HTTP/1.1 on one thread: it listens, reads requests within limits of size and
// time, and writes whole answers or streams of server-sent events. It knows neither models nor
// JSON; a Handler makes the answers.
//
// A slow reader costs the server no memory: a connection asks for streamed data only when it can
// send more (Reply::Stream), so that unsent data stays with its producer.
#ifndef EBB_SERVER_HTTP_HTTP_SERVER_H_
#define EBB_SERVER_HTTP_HTTP_SERVER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ebb/status.h"

namespace ebb::server {

// HttpLimits holds a server's limits: sizes in bytes, times in seconds. The number in a member's
// comment is the HTTP status with which the server refuses a request beyond the limit.
struct HttpLimits {
  uint32_t header_bytes = 16 << 10;  // 431
  uint64_t body_bytes = 8 << 20;     // 413
  // Limits the bytes of request bodies that all connections together are reading. Beyond the limit,
  // the server refuses bodies larger than 64 KiB with status 503.
  uint64_t all_bodies_bytes = 256 << 20;
  double header_seconds = 10;      // 408; from the first byte of the header
  double body_seconds = 30;        // 408
  double idle_seconds = 75;        // between requests; then the connection closes
  double stall_seconds = 30;       // to send 64 KiB of an answer; then it closes
  double ping_seconds = 10;        // silence in a stream, then an SSE comment is sent
  size_t most_connections = 4096;  // others wait in the system's queue
};

struct ApiKey;
struct HttpAnswer;

// Counts the bytes sent and received for one request.
struct HttpTraffic {
  uint64_t body_bytes = 0;   // of the request's body
  uint64_t sent_bytes = 0;   // of the answer, with its header
  bool is_complete = false;  // the whole answer was sent
};

// RequestWatcher is notified how a request is answered. Its members are called on the server's
// thread.
class RequestWatcher {
 public:
  virtual ~RequestWatcher() = default;
  // Is called when the connection sends the header of `answer`; not if the client disconnects
  // before.
  virtual void OnAnswer(const HttpAnswer& answer) = 0;
  // Is called last, when the answer was sent or the connection has ended.
  virtual void OnEnd(const HttpTraffic& traffic) = 0;
};

struct HttpRequest {
  std::string method;
  std::string path;  // see RequestTarget::path
  std::string content_type;
  std::string body = {};
  // Holds the header fields by name in lower case. If a name is repeated, its first field counts,
  // but all fields of `traceparent` and of `tracestate` are joined by commas.
  std::map<std::string, std::string> headers = {};
  std::string remote = {};                            // client's address; "unix" for a unix socket
  std::shared_ptr<RequestWatcher> watcher = nullptr;  // set by Handler::begin
  std::shared_ptr<const ApiKey> key = nullptr;        // key of the client; set by Handler::admit

  // Returns the value of the header field `name` (in lower case); empty if there is none.
  [[nodiscard]] std::string_view header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string_view() : found->second;
  }
};

// Returns a part of a path with its percent encoding decoded; unchanged if the encoding is invalid.
[[nodiscard]] std::string DecodedPart(std::string_view part);

struct HttpAnswer {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string detail = {};  // cause of an error, for the server's log; not sent
};

// Reply sends the answer to one request. It is used only on the server's thread. It may outlive the
// connection; its calls then do nothing.
class Reply {
 public:
  virtual ~Reply() = default;
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;

  // Sends the whole answer. REQUIRES: either Send() or Stream() is called, once.
  virtual void Send(HttpAnswer answer) = 0;
  // Begins an answer of server-sent events: sends the header of `answer`, whose body is ignored,
  // and then calls `take` whenever the connection can send more. `take` returns the data collected
  // since its last call, which may be empty.
  virtual void Stream(HttpAnswer answer, std::function<std::string()> take) = 0;
  // Must be called when `take` has data to return.
  virtual void NotifyData() = 0;
  // Ends the stream when `take` has returned all data.
  virtual void EndStream() = 0;
  // Calls `gone` once if the client disconnects before it has the whole answer; immediately if it
  // has disconnected already.
  virtual void OnDisconnect(std::function<void()> gone) = 0;

 protected:
  Reply() = default;
};

// Returns a Reply that passes each answer, also the header of a stream, through `change` and sends
// the result by `reply`.
[[nodiscard]] std::shared_ptr<Reply> WithChangedAnswers(
    std::shared_ptr<Reply> reply, std::function<HttpAnswer(HttpAnswer)> change);

class HttpServer {
 public:
  // Handler has the functions by which the server answers requests. The server calls them on its
  // thread; they must not block or throw.
  struct Handler {
    // Is called when a request's header has been read, or the server refuses its input as no valid
    // request. May set `request->watcher`. May be null.
    std::function<void(HttpRequest* request)> begin;
    // Is called before the body is read. If it returns an answer, the server sends that without
    // reading the body, and closes the connection; if it returns nullopt, the request continues.
    // May be null.
    std::function<std::optional<HttpAnswer>(HttpRequest* request)> admit;
    std::function<void(HttpRequest, std::shared_ptr<Reply>)> handle;
    // Returns the answer to input that exceeds a limit or is no valid request. `request` has as
    // much of the header as was understood.
    std::function<HttpAnswer(const HttpRequest& request, int status, std::string_view message)>
        refuse;
  };

  // Listens on all addresses of `host` (a name, an address, or "unix:/path") and `port` (0: a free
  // one); connections wait until Serve(). Errors: those of Listener::Open().
  static Result<std::unique_ptr<HttpServer>> Listen(const std::string& host, uint16_t port,
                                                    const HttpLimits& limits, Handler handler);
  // Serves on `sockets`, listening descriptors, which the server closes at the end. Errors: the
  // errors of Listener::Adopt().
  static Result<std::unique_ptr<HttpServer>> Adopt(const std::vector<int>& sockets,
                                                   const HttpLimits& limits, Handler handler);
  // Starts the server's thread. REQUIRES: called at most once.
  void Serve();
  // Closes connections that have no request under way at once, and the others once they are
  // answered, after a second at the latest.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Closes idle connections at once and every other connection, also one accepted later, after its
  // next answer. The server still accepts connections. May be called from any thread.
  void Drain();
  // Returns the number of requests whose answer was not sent completely. May be called from any
  // thread.
  [[nodiscard]] size_t num_answering() const;

  [[nodiscard]] uint16_t port() const;
  // Returns the addresses on which the server listens, at least one: "127.0.0.1:8080",
  // "[::1]:8080", "unix:/path".
  [[nodiscard]] std::vector<std::string> addresses() const;
  // Queues `work` to run on the server's thread. May be called from any thread.
  void Post(std::function<void()> work);
  // Runs `work` on the server's thread after `seconds`, unless the server stops before. REQUIRES:
  // called on the server's thread.
  void PostLater(double seconds, std::function<void()> work);
  [[nodiscard]] size_t num_connections() const;  // may be called from any thread

 private:
  HttpServer();
  void Begin(const HttpLimits& limits, Handler handler);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_HTTP_HTTP_SERVER_H_
