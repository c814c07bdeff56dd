// HTTP/1.1 on one thread: listens, reads requests within limits of size and time, and writes whole
// answers or streams of server-sent events. It knows nothing of models and JSON: a handler makes
// the answers.
//
// A slow reader costs no memory here: the connection asks for streamed data when it can take it
// (Reply::Stream), so that it gathers at its source.
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

// Sizes in bytes, times in seconds.
struct HttpLimits {
  uint32_t header_bytes = 16 << 10;  // more: 431
  uint64_t body_bytes = 8 << 20;     // more: 413
  // Received bytes of bodies that are being read at a time; more: 503 for bodies above 64 KiB.
  uint64_t all_bodies_bytes = 256 << 20;
  double header_seconds = 10;      // from the first byte on; longer: 408
  double body_seconds = 30;        // longer: 408
  double idle_seconds = 75;        // between requests; then the connection is closed
  double stall_seconds = 30;       // in which a reader takes nothing; then it is closed
  double ping_seconds = 10;        // of silence in a stream, before a comment is sent
  size_t most_connections = 4096;  // more wait in the system's queue
};

struct ApiKey;
struct HttpAnswer;

// The bytes sent and received for one request.
struct HttpTraffic {
  uint64_t body_bytes = 0;   // of the request's body
  uint64_t sent_bytes = 0;   // of the answer, its head included
  bool is_complete = false;  // the whole answer was sent
};

// Observes how one request is answered. Its members are called on the server's thread.
class RequestWatcher {
 public:
  virtual ~RequestWatcher() = default;
  // The head of `answer` is sent now. Not called where the client goes before.
  virtual void OnAnswer(const HttpAnswer& answer) = 0;
  // The answer is sent, or the connection has ended. The connection calls nothing after it.
  virtual void OnEnd(const HttpTraffic& traffic) = 0;
};

struct HttpRequest {
  std::string method;
  std::string path;  // see RequestTarget::path
  std::string content_type;
  std::string body = {};
  // Names in small letters; the first of each name, but all of `traceparent` and `tracestate`.
  std::map<std::string, std::string> headers = {};
  std::string remote = {};                            // the client's address; "unix" on a socket
  std::shared_ptr<RequestWatcher> watcher = nullptr;  // set by Handler::begin
  std::shared_ptr<const ApiKey> key = nullptr;        // whose it is; set by Handler::admit

  // Empty: there is none.
  [[nodiscard]] std::string_view header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string_view() : found->second;
  }
};

// A part of a path, decoded; as it is where it cannot be.
[[nodiscard]] std::string DecodedPart(std::string_view part);

struct HttpAnswer {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string detail = {};  // why it failed, for the server's operator: not sent
};

// The answer to one request. Belongs to the server's thread; may outlive the connection, and then
// does nothing.
class Reply {
 public:
  virtual ~Reply() = default;
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;

  // The whole answer. REQUIRES: this or Stream() is called once.
  virtual void Send(HttpAnswer answer) = 0;
  // An answer of server-sent events: `answer` without a body, then what `take` returns, which is
  // called when more can be sent: all that has gathered, perhaps nothing.
  virtual void Stream(HttpAnswer answer, std::function<std::string()> take) = 0;
  // Says that `take` has something to return.
  virtual void NotifyData() = 0;
  // Once all was taken, the stream ends.
  virtual void EndStream() = 0;
  // Calls `gone` once if the client disconnects before it has the whole answer; at once if it has
  // disconnected already.
  virtual void OnDisconnect(std::function<void()> gone) = 0;

 protected:
  Reply() = default;
};

// Wraps `reply`: `change` makes the answers that are sent of those that are given, streams
// included.
[[nodiscard]] std::shared_ptr<Reply> WithChangedAnswers(
    std::shared_ptr<Reply> reply, std::function<HttpAnswer(HttpAnswer)> change);

class HttpServer {
 public:
  // All are called on the server's thread; they must not block or throw.
  struct Handler {
    // Called when a request, or input that is refused as none, has come; may set its `watcher`. May
    // be null.
    std::function<void(HttpRequest* request)> begin;
    // Called before a body is read. Returns an answer that is sent instead of reading it, after
    // which the connection ends; nothing: the request goes on. May be null.
    std::function<std::optional<HttpAnswer>(HttpRequest* request)> admit;
    std::function<void(HttpRequest, std::shared_ptr<Reply>)> handle;
    // Returns the answer to input that goes beyond limits or is no request. `request`: as far as
    // its header was understood.
    std::function<HttpAnswer(const HttpRequest& request, int status, std::string_view message)>
        refuse;
  };

  // Listens on all addresses of `host` (a name, an address, or "unix:/path") and `port` (0: a free
  // one); connections wait until Serve(). Errors: those of Listener::Open().
  static Result<std::unique_ptr<HttpServer>> Listen(const std::string& host, uint16_t port,
                                                    const HttpLimits& limits, Handler handler);
  // Takes over sockets that listen already. Errors: those of Listener::Adopt().
  static Result<std::unique_ptr<HttpServer>> Adopt(const std::vector<int>& sockets,
                                                   const HttpLimits& limits, Handler handler);
  // Begins the server's thread. Once.
  void Serve();
  // Connections without a request are closed, others once they are answered or a second is over.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  // Connections end with their next answer, those without a request at once. New ones are taken.
  // From any thread.
  void Drain();
  // Requests whose answers are not all sent. From any thread.
  [[nodiscard]] size_t num_answering() const;

  [[nodiscard]] uint16_t port() const;
  // "127.0.0.1:8080", "[::1]:8080", "unix:/path"; at least one.
  [[nodiscard]] std::vector<std::string> addresses() const;
  // Runs `work` on the server's thread, soon. From any thread.
  void Post(std::function<void()> work);
  // So many seconds later; not at all where the server has gone before. From its thread alone.
  void PostLater(double seconds, std::function<void()> work);
  [[nodiscard]] size_t num_connections() const;  // from any thread

 private:
  HttpServer();
  void Begin(const HttpLimits& limits, Handler handler);
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_HTTP_HTTP_SERVER_H_
