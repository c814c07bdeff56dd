// Listener opens the listening sockets of a server: a TCP port at one or several addresses, a unix
// socket, or sockets that the process got from its parent.
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

// Returns `endpoint` as a TCP endpoint; nullopt if it is of another protocol.
[[nodiscard]] std::optional<boost::asio::ip::tcp::endpoint> AsTcp(
    const StreamProtocol::endpoint& endpoint);

class Listener {
 public:
  explicit Listener(boost::asio::io_context* io) : io_(io) {}
  ~Listener() { Close(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // Listens at `host` and `port`. `host` is an address, a name (the listener uses all of its
  // addresses) or "unix:/path". Port 0 chooses a free one, the same for all addresses. An address
  // that this machine does not have, such as ::1 without IPv6, is skipped if another address works.
  // A socket file whose server has ended is replaced; the new file is open to its owner and group.
  // Errors: InvalidArgument (no such host; the path is too long); IoError (the address cannot be
  // used at present).
  [[nodiscard]] Status Open(const std::string& host, uint16_t port);
  // Listens on `sockets`, listening descriptors, which Close() closes. It does not remove their
  // socket files, which belong to the process that made them. Errors: InvalidArgument (a descriptor
  // is no listening stream socket).
  [[nodiscard]] Status Adopt(const std::vector<int>& sockets);
  // Listens at `endpoints`, all with the port of the first. Errors: those of Open().
  [[nodiscard]] Status OpenPorts(const std::vector<boost::asio::ip::tcp::endpoint>& endpoints);
  // Closes all sockets and removes the socket file that Open() made.
  void Close();

  // Returns the acceptors, at least one after Open(). Asio does not let them move while they wait.
  [[nodiscard]] std::deque<StreamAcceptor>& acceptors() { return acceptors_; }
  [[nodiscard]] uint16_t port() const;  // 0 for a unix socket
  // Returns the addresses, IPv4 first: "127.0.0.1:8080", "[::1]:8080", "unix:/path".
  [[nodiscard]] std::vector<std::string> addresses() const;

 private:
  [[nodiscard]] Status OpenPath(const std::string& path);

  boost::asio::io_context* const io_;
  std::deque<StreamAcceptor> acceptors_;  // a deque never moves its elements
  std::string path_;                      // socket file that Open() made; empty: none
};

}  // namespace ebb::server

#endif  // EBB_SERVER_HTTP_LISTENER_H_
