// Connection serves one connection of HttpServer: it reads requests one after the other, each
// within its limits, and writes the answers that the Handler makes.
//
// Invariants:
// 1. All members are called on the thread that runs the socket's io_context.
// 2. A connection has at most one read, one write and one wait for input under way, and one timer.
// 3. Every wait has a deadline: for the next request, a header, a body, a write.
#ifndef EBB_SERVER_HTTP_CONNECTION_H_
#define EBB_SERVER_HTTP_CONNECTION_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <boost/asio.hpp>
#include <boost/beast/core/buffers_range.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include "src/server/http/http_server.h"
#include "src/server/http/listener.h"

namespace ebb::server {

inline std::chrono::steady_clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds));
}

class Connection;

// GrowingBody is a Beast body type whose string grows as bytes come. Beast's string_body would
// reserve the size that the header announces, so that a client could reserve memory without sending
// anything.
struct GrowingBody {
  using value_type = std::string;
  class reader {
   public:
    template <bool is_request, class Fields>
    reader(boost::beast::http::header<is_request, Fields>& /*header*/, std::string& body)
        : body_(body) {}
    void init(const boost::optional<uint64_t>& /*size*/, boost::system::error_code& error) {
      error = {};
    }
    template <class Buffers>
    size_t put(const Buffers& buffers, boost::system::error_code& error) {
      error = {};
      const size_t size = body_.size();
      for (const boost::asio::const_buffer part : boost::beast::buffers_range_ref(buffers)) {
        body_.append(static_cast<const char*>(part.data()), part.size());
      }
      return body_.size() - size;
    }
    void finish(boost::system::error_code& error) { error = {}; }

   private:
    std::string& body_;
  };
};

// SharedByConnections holds the state that all connections of a server share.
struct SharedByConnections {
  HttpLimits limits;
  HttpServer::Handler handler;
  bool draining = false;  // connections close after their next answer
  bool stopping = false;
  std::list<std::weak_ptr<Connection>> connections;
  std::atomic<size_t> num_connections = 0;
  std::atomic<size_t> num_answering = 0;
  uint64_t body_bytes = 0;          // bytes of all request bodies being read
  std::function<void()> on_closed;  // called when a connection has ended
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  // Makes a connection on `socket`. `remote` is the address of the client, for HttpRequest::remote.
  Connection(StreamProtocol::socket socket, std::string remote,
             std::shared_ptr<SharedByConnections> shared)
      : socket_(std::move(socket)),
        timer_(socket_.get_executor()),
        peer_timer_(socket_.get_executor()),
        shared_(std::move(shared)),
        buffer_(shared_->limits.header_bytes + kMostPerRead),
        remote_(std::move(remote)) {
    ++shared_->num_connections;
  }
  ~Connection() {
    KeepRoom(0);
    --shared_->num_connections;
    shared_->on_closed();
  }

  void Begin() { WaitForRequest(); }
  void Abort() {
    boost::system::error_code ignored;
    timer_.cancel(ignored);
    peer_timer_.cancel(ignored);
    socket_.close(ignored);
    LoseReply();
  }
  [[nodiscard]] bool is_busy() const { return state_ == State::kAnswering; }
  [[nodiscard]] bool is_idle() const { return state_ == State::kIdle; }

 private:
  enum class State { kIdle, kReading, kAnswering, kClosing };
  static constexpr size_t kMostPerRead = size_t{64} << 10;
  static constexpr size_t kSmallBody = size_t{64} << 10;
  class ReplyToConnection;

  void WaitForRequest();
  void ReadHeader();
  // Skips empty lines before a request, then parses its header.
  void ReadRequestLine();
  // Reads into `buffer_`, then calls `next`.
  void ReadMore(void (Connection::*next)());
  void OnHeader(const boost::system::error_code& error);
  void ReadBody();
  void ParseBody();
  void OnBody(const boost::system::error_code& error);
  // Passes `request_`, with as much of its header as was understood, to Handler::begin.
  void BeginRequest();
  // Notifies the request's watcher that the connection has finished the request.
  void EndRequest(bool is_complete);
  void Refuse(int status, std::string_view message);
  void RefuseWith(HttpAnswer answer);
  // Counts `bytes` as this connection's part of the request bodies that are being read; 0 releases
  // it.
  void KeepRoom(uint64_t bytes) {
    shared_->body_bytes += bytes - kept_bytes_;
    kept_bytes_ = bytes;
  }
  // Waits until the socket has input or the peer has closed it, then calls OnInput().
  void WatchInput();
  void OnInput();
  // Checks once a second whether the peer has closed while input is left unread in the socket: the
  // socket stays readable then, so that no other event reports the close.
  void WatchPeer();
  void Send(HttpAnswer answer);
  void Stream(HttpAnswer answer, std::function<std::string()> take);
  void Pump();
  void Write(std::string bytes);
  void WriteNext();
  void OnWritten();
  // Finishes a request whose answer is sent, then waits for the next request or closes the
  // connection.
  void EndAnswer();
  // Stops sending, and reads and discards input for at most 2 seconds before the socket is closed:
  // closing it with unread input could destroy the end of the answer before the peer reads it.
  void Drain();
  void ThrowInputAway();
  // Ends a request whose answer cannot be completed, because the peer has disconnected or the
  // connection is closed.
  void LoseReply();
  void SetTimer(double seconds, void (Connection::*expired)());
  void Expire() { Abort(); }
  void ExpireReading() {
    if (state_ == State::kReading) Refuse(408, "the request did not come in time");
  }
  void Ping();

  template <typename Work>
  auto Bound(Work work) {
    return [self = shared_from_this(), work](const boost::system::error_code& error, auto&&...) {
      if (error != boost::asio::error::operation_aborted) work(*self, error);
    };
  }

  StreamProtocol::socket socket_;
  boost::asio::steady_timer timer_, peer_timer_;
  const std::shared_ptr<SharedByConnections> shared_;
  State state_ = State::kIdle;
  // Holds received bytes that are not parsed yet. Its size is limited, since extensions of chunks
  // gather here and the limit of a body does not count them.
  boost::beast::flat_buffer buffer_;
  std::optional<boost::beast::http::request_parser<GrowingBody>> parser_;
  HttpRequest request_;      // the request being read
  uint64_t kept_bytes_ = 0;  // bytes counted in SharedByConnections::body_bytes
  const std::string remote_;
  std::shared_ptr<RequestWatcher> watcher_;  // watches the current request; may be null
  HttpTraffic traffic_;                      // bytes of the current request
  bool watching_ = false;
  bool keep_alive_ = true;
  bool head_only_ = false;
  bool ends_unheard_ = false;  // the connection closes after this write
  bool is_http_1_0_ = false;
  std::string out_;  // bytes being written; in Drain(), discarded input
  size_t written_ = 0;
  bool writing_ = false;
  bool is_stream_ = false;
  bool stream_ended_ = false;
  std::function<std::string()> take_;
  std::shared_ptr<ReplyToConnection> reply_;
};

}  // namespace ebb::server

#endif  // EBB_SERVER_HTTP_CONNECTION_H_
