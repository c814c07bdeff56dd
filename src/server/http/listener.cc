#include "src/server/http/listener.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/local/stream_protocol.hpp>

namespace ebb::server {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

constexpr std::string_view kUnix = "unix:";

// Returns whether `endpoint` is a socket file whose server has ended, which refuses connections.
bool IsLeftOver(asio::io_context* io, const asio::local::stream_protocol::endpoint& endpoint) {
  struct stat info = {};
  if (lstat(endpoint.path().c_str(), &info) != 0 || !S_ISSOCK(info.st_mode)) return false;
  asio::local::stream_protocol::socket socket(*io);
  error_code error;
  socket.connect(endpoint, error);
  return error == asio::error::connection_refused;
}

std::optional<tcp::endpoint> LocalEndpoint(const StreamAcceptor& acceptor) {
  error_code ignored;
  return AsTcp(acceptor.local_endpoint(ignored));
}

std::string Text(const tcp::endpoint& endpoint) {
  const std::string host = endpoint.address().to_string();
  return fmt::format("{}:{}", endpoint.address().is_v6() ? "[" + host + "]" : host,
                     endpoint.port());
}

// Returns all addresses of `host`, each once, IPv4 first.
Result<std::vector<tcp::endpoint>> Resolve(asio::io_context* io, const std::string& host,
                                           uint16_t port) {
  error_code error;
  tcp::resolver resolver(*io);
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::passive, error);
  if (error || found.empty()) {
    std::string message =
        fmt::format("cannot resolve the address \"{}\": {}", host, error.message());
    // The name server did not answer. A later try may succeed, so the error is no InvalidArgument.
    return error == asio::error::host_not_found_try_again ? IoError(std::move(message))
                                                          : InvalidArgument(std::move(message));
  }
  std::vector<tcp::endpoint> endpoints;
  for (const auto& entry : found) {
    if (std::ranges::find(endpoints, entry.endpoint()) == endpoints.end()) {
      endpoints.push_back(entry.endpoint());
    }
  }
  std::stable_partition(endpoints.begin(), endpoints.end(),
                        [](const auto& e) { return e.address().is_v4(); });
  return endpoints;
}

// Returns whether `error` says that this machine does not have the address, or no addresses of its
// kind.
bool IsMissing(const error_code& error) {
  return error == asio::error::address_family_not_supported ||
         error == boost::system::errc::address_not_available ||
         error == boost::system::errc::protocol_not_supported;
}

// Returns the error for a failure to listen at `where`: IoError if a later try may succeed (the
// address is in use or missing now, or resources ran out); else InvalidArgument.
Status CannotListen(const std::string& where, const error_code& error) {
  std::string message = fmt::format("cannot listen on {}: {}", where, error.message());
  const bool may_pass = error == asio::error::address_in_use ||
                        error == boost::system::errc::address_not_available ||
                        error == asio::error::no_descriptors || error == asio::error::no_memory ||
                        error == asio::error::no_buffer_space;
  return may_pass ? IoError(std::move(message)) : InvalidArgument(std::move(message));
}

// Returns the address of a socket in the file system, as "unix:/path".
std::string PathText(const StreamAcceptor& acceptor) {
  error_code ignored;
  const StreamProtocol::endpoint endpoint = acceptor.local_endpoint(ignored);
  asio::local::stream_protocol::endpoint converted;
  converted.resize(std::min(endpoint.size(), converted.capacity()));
  std::memcpy(converted.data(), endpoint.data(), converted.size());
  return fmt::format("{}{}", kUnix, converted.path());
}

bool IsListening(int socket) {
  int listens = 0;
  socklen_t size = sizeof(listens);
  return getsockopt(socket, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) == 0 && listens != 0;
}

error_code ListenAt(const tcp::endpoint& endpoint, bool is_one_of_several,
                    StreamAcceptor* acceptor) {
  error_code error;
  acceptor->open(StreamProtocol(endpoint.protocol()), error);
  if (!error) acceptor->set_option(tcp::acceptor::reuse_address(true), error);
  // With this option, an IPv6 socket at "::" does not occupy the port of "0.0.0.0", so that both
  // can be used.
  if (!error && is_one_of_several && endpoint.address().is_v6()) {
    acceptor->set_option(asio::ip::v6_only(true), error);
  }
  if (!error) acceptor->bind(endpoint, error);
  if (!error) acceptor->listen(asio::socket_base::max_listen_connections, error);
  return error;
}

}  // namespace

std::optional<tcp::endpoint> AsTcp(const StreamProtocol::endpoint& endpoint) {
  const int family = endpoint.protocol().family();
  if (family != AF_INET && family != AF_INET6) return std::nullopt;
  tcp::endpoint converted;
  std::memcpy(converted.data(), endpoint.data(), std::min(endpoint.size(), converted.capacity()));
  return converted;
}

Status Listener::Open(const std::string& host, uint16_t port) {
  if (host.starts_with(kUnix)) return OpenPath(host.substr(kUnix.size()));
  EBB_ASSIGN_OR_RETURN(const std::vector<tcp::endpoint> endpoints, Resolve(io_, host, port));
  // With port 0, the port that the system chose for the first address may be in use at another one:
  // the listener then tries with another port.
  constexpr int kMostTries = 20;
  Status status = OpenPorts(endpoints);
  for (int i = 1; i < kMostTries && port == 0 && endpoints.size() > 1 && !status.ok(); ++i) {
    status = OpenPorts(endpoints);
  }
  return status;
}

Status Listener::Adopt(const std::vector<int>& sockets) {
  for (const int socket : sockets) {
    sockaddr_storage address = {};
    socklen_t size = sizeof(address);
    const bool has_address = getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) == 0;
    StreamAcceptor acceptor(*io_);
    error_code error;
    const bool is_stream = has_address && IsListening(socket);
    if (is_stream) acceptor.assign(StreamProtocol(address.ss_family, 0), socket, error);
    if (!is_stream || error) {
      return InvalidArgument(
          fmt::format("descriptor {}: expected a stream socket that listens", socket));
    }
    acceptors_.push_back(std::move(acceptor));
  }
  return OkStatus();
}

Status Listener::OpenPath(const std::string& path) {
  constexpr size_t kMostBytes = 107;  // sockaddr_un::sun_path without its terminator
  if (path.empty() || path.size() > kMostBytes) {
    return InvalidArgument("host", fmt::format("expected unix: and a path of 1 to {} bytes, found "
                                               "\"{}{}\"",
                                               kMostBytes, kUnix, path));
  }
  const asio::local::stream_protocol::endpoint endpoint(path);
  struct stat info = {};
  if (lstat(path.c_str(), &info) == 0 && !S_ISSOCK(info.st_mode)) {
    return InvalidArgument(
        fmt::format("cannot listen on {}: something that is no socket is there", path));
  }
  if (IsLeftOver(io_, endpoint)) unlink(path.c_str());
  StreamAcceptor acceptor(*io_);
  error_code error;
  acceptor.open(StreamProtocol(AF_UNIX, 0), error);
  // Sets the mode before bind(), so that other users cannot connect until chmod() below sets the
  // final one.
  if (!error && fchmod(acceptor.native_handle(), S_IRUSR | S_IWUSR) != 0) {
    error.assign(errno, boost::system::system_category());
  }
  if (!error) acceptor.bind(endpoint, error);
  if (error) return CannotListen(path, error);
  path_ = path;
  acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (!error && chmod(path.c_str(), S_IRUSR | S_IWUSR | S_IRGRP | S_IWGRP) != 0) {
    error.assign(errno, boost::system::system_category());
  }
  // bind() has made the file: with the acceptor in the list, Close() removes it also after an
  // error.
  acceptors_.push_back(std::move(acceptor));
  if (error) return CannotListen(path, error);
  return OkStatus();
}

Status Listener::OpenPorts(const std::vector<tcp::endpoint>& endpoints) {
  acceptors_.clear();
  Status missing;
  for (tcp::endpoint endpoint : endpoints) {
    if (!acceptors_.empty()) endpoint.port(port());
    StreamAcceptor acceptor(*io_);
    const error_code error = ListenAt(endpoint, endpoints.size() > 1, &acceptor);
    if (!error) {
      acceptors_.push_back(std::move(acceptor));
      continue;
    }
    Status status = CannotListen(Text(endpoint), error);
    if (!IsMissing(error)) return status;
    missing = std::move(status);
  }
  return acceptors_.empty() ? missing : OkStatus();
}

void Listener::Close() {
  for (StreamAcceptor& acceptor : acceptors_) {
    if (!acceptor.is_open()) continue;
    error_code ignored;
    acceptor.close(ignored);
    if (!path_.empty()) unlink(path_.c_str());
  }
}

uint16_t Listener::port() const {
  const std::optional<tcp::endpoint> endpoint = LocalEndpoint(acceptors_.front());
  return endpoint ? endpoint->port() : 0;
}

std::vector<std::string> Listener::addresses() const {
  std::vector<std::string> addresses;
  for (const StreamAcceptor& acceptor : acceptors_) {
    const std::optional<tcp::endpoint> endpoint = LocalEndpoint(acceptor);
    addresses.push_back(endpoint ? Text(*endpoint) : PathText(acceptor));
  }
  return addresses;
}

}  // namespace ebb::server
