#include "src/server/http/listener.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>

namespace ebb::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::string_view kUnix = "unix:";

// A socket whose server has gone stays in the file system and refuses connections.
bool IsLeftOver(asio::io_context* io, const asio::local::stream_protocol::endpoint& endpoint) {
  struct stat info = {};
  if (lstat(endpoint.path().c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return false;
  asio::local::stream_protocol::socket socket(*io);
  error_code error;
  socket.connect(endpoint, error);
  return error == asio::error::connection_refused;
}

tcp::endpoint TcpEndpoint(const asio::basic_socket_acceptor<StreamProtocol>& acceptor) {
  error_code ignored;
  const StreamProtocol::endpoint local = acceptor.local_endpoint(ignored);
  tcp::endpoint endpoint;
  std::memcpy(endpoint.data(), local.data(), std::min(local.size(), endpoint.capacity()));
  return endpoint;
}

}  // namespace

Status Listener::Open(const std::string& host, uint16_t port) {
  return host.starts_with(kUnix) ? OpenPath(host.substr(kUnix.size())) : OpenPort(host, port);
}

Status Listener::OpenPath(const std::string& path) {
  constexpr size_t kMostBytes = 107;  // of sockaddr_un, its end left out
  if (path.empty() || path.size() > kMostBytes) {
    return InvalidArgument(
        fmt::format("host: expected unix: and a path of 1 to {} bytes, found "
                    "\"{}{}\"",
                    kMostBytes, kUnix, path));
  }
  const asio::local::stream_protocol::endpoint endpoint(path);
  auto& io = static_cast<asio::io_context&>(acceptor_.get_executor().context());
  if (IsLeftOver(&io, endpoint)) unlink(path.c_str());
  error_code error;
  acceptor_.open(StreamProtocol(AF_UNIX, 0), error);
  // Nobody else connects before the socket has its final mode.
  if (!error && fchmod(acceptor_.native_handle(), S_IRUSR | S_IWUSR) != 0) {
    error.assign(errno, boost::system::system_category());
  }
  if (!error) acceptor_.bind(endpoint, error);
  if (error) return IoError(fmt::format("cannot listen on {}: {}", path, error.message()));
  path_ = path;
  acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (!error && chmod(path.c_str(), S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP) != 0) {
    error.assign(errno, boost::system::system_category());
  }
  if (error) return IoError(fmt::format("cannot listen on {}: {}", path, error.message()));
  return OkStatus();
}

Status Listener::OpenPort(const std::string& host, uint16_t port) {
  error_code error;
  tcp::resolver resolver(acceptor_.get_executor());
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    return InvalidArgument(fmt::format("no address is called \"{}\": {}", host, error.message()));
  }
  const tcp::endpoint endpoint = *found.begin();
  acceptor_.open(StreamProtocol(endpoint.protocol()), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) return IoError(fmt::format("cannot listen on {}:{}: {}", host, port, error.message()));
  return OkStatus();
}

void Listener::Close() {
  if (!acceptor_.is_open()) return;
  error_code ignored;
  acceptor_.close(ignored);
  if (!path_.empty()) unlink(path_.c_str());
}

uint16_t Listener::port() const { return path_.empty() ? TcpEndpoint(acceptor_).port() : 0; }

std::string Listener::address() const {
  if (!path_.empty()) return fmt::format("{}{}", kUnix, path_);
  const tcp::endpoint endpoint = TcpEndpoint(acceptor_);
  const std::string host = endpoint.address().to_string();
  return fmt::format("{}:{}", endpoint.address().is_v6() ? "[" + host + "]" : host,
                     endpoint.port());
}

}  // namespace ebb::server
