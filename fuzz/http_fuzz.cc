// Any bytes on a connection of the server: every request that comes of them is within the limits,
// and the connection ends soon after its client has sent the last one.
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>

#include "src/server/http/http_server.h"

namespace {

using ebb::server::HttpAnswer;
using ebb::server::HttpLimits;
using ebb::server::HttpRequest;
using ebb::server::HttpServer;
using ebb::server::Reply;

constexpr HttpLimits kLimits = {.header_bytes = 2048, .body_bytes = 4096};

void Expect(bool holds) {
  if (!holds) std::abort();
}

void Answer(HttpRequest request, const std::shared_ptr<Reply>& reply) {
  Expect(!request.method.empty() && request.body.size() <= kLimits.body_bytes);
  if (!request.path.starts_with("/stream")) return reply->Send({.body = std::move(request.body)});
  auto left = std::make_shared<std::string>(std::move(request.path));
  reply->Stream({.content_type = "text/event-stream"},
                [left] { return std::exchange(*left, std::string()); });
  reply->EndStream();
}

class FuzzedServer {
 public:
  FuzzedServer() : path_("/tmp/ebb-http-fuzz-" + std::to_string(getpid())) {
    auto server = HttpServer::Listen(
        "unix:" + path_, 0, kLimits,
        {.admit = nullptr,
         .handle = [](HttpRequest request,
                      std::shared_ptr<Reply> reply) { Answer(std::move(request), reply); },
         .refuse =
             [](const HttpRequest&, int status, std::string_view message) {
               Expect(status >= 400 && status < 600);
               return HttpAnswer{.status = status, .body = std::string(message)};
             }});
    Expect(server.ok());
    server_ = *std::move(server);
    server_->Serve();
  }
  ~FuzzedServer() {
    server_.reset();
    unlink(path_.c_str());
  }
  FuzzedServer(const FuzzedServer&) = delete;
  FuzzedServer& operator=(const FuzzedServer&) = delete;

  [[nodiscard]] int Connect() const {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::copy(path_.begin(), path_.end(), address.sun_path);
    Expect(connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
    const timeval most = {.tv_sec = 20, .tv_usec = 0};
    Expect(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most) == 0);
    return fd;
  }

 private:
  const std::string path_;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Less than a socket holds, so that sending does not wait for a server that waits for us.
  constexpr size_t kMaxInputBytes = size_t{64} << 10;
  if (size > kMaxInputBytes) return 0;
  static const FuzzedServer server;
  const int fd = server.Connect();
  while (size > 0) {
    const ssize_t sent = send(fd, data, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) break;  // it has refused what came before, and closed
    data += sent;
    size -= static_cast<size_t>(sent);
  }
  shutdown(fd, SHUT_WR);
  char answer[4096];
  ssize_t got = 0;
  // A fuzzer's own clock interrupts.
  while ((got = recv(fd, answer, sizeof answer, 0)) > 0 || (got < 0 && errno == EINTR)) {
  }
  Expect(got == 0 || errno == ECONNRESET);
  close(fd);
  return 0;
}
