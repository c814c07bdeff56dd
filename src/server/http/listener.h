// Where a server listens: a port of TCP, or a socket in the file system.
#ifndef EBB_SERVER_HTTP_LISTENER_H_
#define EBB_SERVER_HTTP_LISTENER_H_

#include <cstdint>
#include <string>

#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>

#include "ebb/status.h"

namespace ebb::server {

using StreamProtocol = boost::asio::generic::stream_protocol;

class Listener {
 public:
  explicit Listener(boost::asio::io_context* io) : acceptor_(*io) {}
  ~Listener() { Close(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // host: a name, an address, or "unix:/path". A socket that nobody listens on any more is
  // replaced; the new one is open to its owner and group. Errors: InvalidArgument (no such host; a
  // path that is too long); IoError (cannot be listened on).
  [[nodiscard]] Status Open(const std::string& host, uint16_t port);
  // Removes the socket from the file system.
  void Close();

  [[nodiscard]] boost::asio::basic_socket_acceptor<StreamProtocol>& acceptor() { return acceptor_; }
  [[nodiscard]] uint16_t port() const;        // 0: a socket in the file system
  [[nodiscard]] std::string address() const;  // "127.0.0.1:8080", "[::1]:8080", "unix:/path"

 private:
  [[nodiscard]] Status OpenPath(const std::string& path);
  [[nodiscard]] Status OpenPort(const std::string& host, uint16_t port);

  boost::asio::basic_socket_acceptor<StreamProtocol> acceptor_;
  std::string path_;  // of the socket; empty: a port
};

}  // namespace ebb::server

#endif  // EBB_SERVER_HTTP_LISTENER_H_
