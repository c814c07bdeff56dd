// A server of HTTP/1.1 on this machine for tests of clients: it answers as the test says, and fails
// as servers and networks do.
#ifndef EBB_TESTS_SUPPORT_HUB_HTTP_SERVER_H_
#define EBB_TESTS_SUPPORT_HUB_HTTP_SERVER_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace ebb {

struct SeenRequest {
  std::string method;
  std::string target;                          // "/path?query"
  std::map<std::string, std::string> headers;  // names in lower case

  [[nodiscard]] std::string Header(const std::string& name) const;
};

struct ServerAnswer {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers = {};
  std::string body = {};
  bool sends_length = true;                // by Content-Length
  std::optional<size_t> close_after = {};  // so many bytes of the body
  std::optional<size_t> stall_after = {};  // nothing comes behind them until the client goes
  std::function<void()> before_body = {};  // called when the head has been sent
};

// Answers each connection's one request on a thread of its own.
class TestHttpServer {
 public:
  // The handler is called from several threads, one at a time.
  using Handler = std::function<ServerAnswer(const SeenRequest&)>;
  explicit TestHttpServer(Handler handler);
  ~TestHttpServer();
  TestHttpServer(const TestHttpServer&) = delete;
  TestHttpServer& operator=(const TestHttpServer&) = delete;

  // "http://127.0.0.1:PORT".
  [[nodiscard]] std::string url() const;
  // Those since the last call.
  [[nodiscard]] std::vector<SeenRequest> TakeRequests();

 private:
  void Accept();
  void Serve(int connection);

  Handler handler_;
  int socket_ = -1;
  uint16_t port_ = 0;
  std::atomic<bool> ends_{false};
  std::mutex mutex_;
  std::vector<SeenRequest> requests_;
  std::vector<std::thread> connections_;
  std::thread acceptor_;
};

// Cuts the body to the range that the request asks for, as RFC 9110 says: all of it where If-Range
// names another entity tag than `etag`, status 416 where the range begins behind the end.
void ApplyRange(const SeenRequest& request, const std::string& etag, ServerAnswer* answer);

}  // namespace ebb

#endif  // EBB_TESTS_SUPPORT_HUB_HTTP_SERVER_H_
