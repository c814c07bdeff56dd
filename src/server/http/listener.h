// Listens on a port of TCP, at one address or several, on a socket in the file system, or on
// sockets that the process was started with.
#ifndef EBB_SERVER_HTTP_LISTENER_H_
#define EBB_SERVER_HTTP_LISTENER_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "ebb/status.h"

namespace ebb::server {

using StreamProtocol = boost::asio::generic::stream_protocol;

using StreamAcceptor = boost::asio::basic_socket_acceptor<StreamProtocol>;

// Nothing: an endpoint of another kind than TCP.
[[nodiscard]] std::optional<boost::asio::ip::tcp::endpoint> AsTcp(
    const StreamProtocol::endpoint& endpoint);

class Listener {
 public:
  explicit Listener(boost::asio::io_context* io) : io_(io) {}
  ~Listener() { Close(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // host: a name, all of whose addresses are listened on, an address, or "unix:/path". port 0: a
  // free one, the same at all addresses. An address that this machine does not have, such as ::1
  // without IPv6, is left out if there is another one. A socket in the file system without a server
  // is replaced; the new one is open to its owner and group. Errors: InvalidArgument (no such host;
  // a path that is too long); IoError (cannot be listened on).
  [[nodiscard]] Status Open(const std::string& host, uint16_t port);
  // Takes over sockets that listen already. Close() leaves their paths in the file system to the
  // process that made them. Errors: InvalidArgument (a descriptor of something else).
  [[nodiscard]] Status Adopt(const std::vector<int>& sockets);
  // Open() for addresses that are known; all have the port of the first.
  [[nodiscard]] Status OpenPorts(const std::vector<boost::asio::ip::tcp::endpoint>& endpoints);
  // Removes the socket from the file system.
  void Close();

  // At least one after Open().
  [[nodiscard]] std::deque<StreamAcceptor>& acceptors() { return acceptors_; }
  [[nodiscard]] uint16_t port() const;  // 0: a socket in the file system
  // "127.0.0.1:8080", "[::1]:8080", "unix:/path", those of IPv4 first.
  [[nodiscard]] std::vector<std::string> addresses() const;

 private:
  [[nodiscard]] Status OpenPath(const std::string& path);

  boost::asio::io_context* const io_;
  std::deque<StreamAcceptor> acceptors_;  // which asio does not move while they wait
  std::string path_;                      // of the socket that Open() made; empty: none
};

}  // namespace ebb::server

#endif  // EBB_SERVER_HTTP_LISTENER_H_
