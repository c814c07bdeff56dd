#include "tests/support/hub/http_server.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <string_view>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace ebb {
namespace {

// False: the client is gone.
bool SendAll(int connection, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t count = send(connection, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (count <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

std::string_view WithoutBlanks(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

std::optional<SeenRequest> ReadRequest(int connection) {
  std::string head;
  while (head.find("\r\n\r\n") == std::string::npos) {
    char buffer[4096];
    const ssize_t count = recv(connection, buffer, sizeof(buffer), 0);
    if (count <= 0) return std::nullopt;
    head.append(buffer, static_cast<size_t>(count));
  }
  SeenRequest request;
  const size_t first = head.find(' ');
  const size_t second = head.find(' ', first + 1);
  request.method = head.substr(0, first);
  request.target = head.substr(first + 1, second - first - 1);
  for (size_t begin = head.find('\n') + 1; begin < head.size();) {
    const size_t end = std::min(head.find('\n', begin), head.size());
    const std::string_view line(head.data() + begin, end - begin);
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos) {
      std::string name(line.substr(0, colon));
      std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
      request.headers[name] = WithoutBlanks(line.substr(colon + 1));
    }
    begin = end + 1;
  }
  return request;
}

}  // namespace

std::string SeenRequest::Header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

TestHttpServer::TestHttpServer(Handler handler) : handler_(std::move(handler)) {
  socket_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(socket_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(socket_, SOMAXCONN) != 0 ||
      getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    std::abort();
  }
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

TestHttpServer::~TestHttpServer() {
  ends_ = true;
  shutdown(socket_, SHUT_RDWR);
  acceptor_.join();
  for (std::thread& connection : connections_) connection.join();
  close(socket_);
}

std::string TestHttpServer::url() const { return fmt::format("http://127.0.0.1:{}", port_); }

std::vector<SeenRequest> TestHttpServer::TakeRequests() {
  const std::lock_guard lock(mutex_);
  return std::exchange(requests_, {});
}

void TestHttpServer::Accept() {
  while (!ends_) {
    const int connection = accept4(socket_, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) continue;
    connections_.emplace_back([this, connection] {
      Serve(connection);
      close(connection);
    });
  }
}

void TestHttpServer::Serve(int connection) {
  const std::optional<SeenRequest> request = ReadRequest(connection);
  if (!request) return;
  ServerAnswer answer;
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(*request);
    answer = handler_(*request);
  }
  std::string head = fmt::format("HTTP/1.1 {} Status\r\nConnection: close\r\n", answer.status);
  if (answer.sends_length) head += fmt::format("Content-Length: {}\r\n", answer.body.size());
  for (const auto& [name, value] : answer.headers) head += fmt::format("{}: {}\r\n", name, value);
  if (!SendAll(connection, head + "\r\n")) return;
  if (answer.before_body) answer.before_body();
  const size_t whole = answer.body.size();
  const size_t sent =
      std::min({whole, answer.close_after.value_or(whole), answer.stall_after.value_or(whole)});
  if (!SendAll(connection, std::string_view(answer.body).substr(0, sent))) return;
  if (!answer.stall_after) {
    shutdown(connection, SHUT_WR);
    return;
  }
  while (!ends_) {
    pollfd client = {.fd = connection, .events = POLLIN | POLLRDHUP, .revents = 0};
    constexpr int kMilliseconds = 20;
    if (poll(&client, 1, kMilliseconds) > 0) return;
  }
}

void ApplyRange(const SeenRequest& request, const std::string& etag, ServerAnswer* answer) {
  constexpr std::string_view kUnit = "bytes=";
  const std::string range = request.Header("range");
  const std::string if_range = request.Header("if-range");
  if (!range.starts_with(kUnit) || (!if_range.empty() && if_range != etag)) return;
  const size_t total = answer->body.size();
  const size_t begin = std::strtoull(range.c_str() + kUnit.size(), nullptr, 10);
  if (begin >= total) {
    answer->status = 416;
    answer->headers.emplace_back("Content-Range", fmt::format("bytes */{}", total));
    answer->body.clear();
    return;
  }
  size_t end = total;
  if (const size_t dash = range.find('-'); dash + 1 < range.size()) {
    end = std::min<size_t>(total, std::strtoull(range.c_str() + dash + 1, nullptr, 10) + 1);
  }
  answer->status = 206;
  answer->headers.emplace_back("Content-Range",
                               fmt::format("bytes {}-{}/{}", begin, end - 1, total));
  answer->body = answer->body.substr(begin, end - begin);
}

}  // namespace ebb
