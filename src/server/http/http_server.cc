// Invariants:
// 1. Everything but the thread itself belongs to the thread that runs `io`.
// 2. A connection has at most one read, one write and one wait for input under way, and one timer.
// 3. Whatever waits has a deadline: idle connections, headers, bodies, writes.
#include "src/server/http/http_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <list>
#include <optional>
#include <thread>

#include <fmt/format.h>
#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

#include "src/server/http/listener.h"
#include "src/store/percent_encoding.h"

namespace ebb::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr int kClientClosedRequest = 499;
constexpr size_t kMostPerRead = size_t{64} << 10;
constexpr size_t kMostPerWrite = size_t{64} << 10;

std::chrono::steady_clock::duration Seconds(double seconds) {
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(seconds));
}

std::string Head(const HttpAnswer& answer, std::string_view framing) {
  const auto known = http::obsolete_reason(http::int_to_status(answer.status));
  // No standard has it, but servers and proxies do.
  const std::string_view reason = answer.status == kClientClosedRequest
                                      ? std::string_view("Client Closed Request")
                                      : std::string_view(known.data(), known.size());
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", answer.status, reason);
  if (!answer.content_type.empty())
    head += fmt::format("Content-Type: {}\r\n", answer.content_type);
  for (const auto& [name, value] : answer.headers) head += fmt::format("{}: {}\r\n", name, value);
  return head += fmt::format("{}\r\n", framing);
}

// Rather than cut off.
bool IsMalformed(const error_code& error) {
  static const error_code http_error = http::make_error_code(http::error::bad_method);
  return error.category() == http_error.category() && error != http::error::end_of_stream &&
         error != http::error::partial_message;
}

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

// What the header of a request says.
HttpRequest HeadOf(const http::request_header<>& header) {
  const bool head_only = header.method() == http::verb::head;
  HttpRequest request = {.method = head_only ? "GET" : std::string(View(header.method_string())),
                         .path = std::string(View(header.target())),
                         .content_type = std::string(View(header[http::field::content_type]))};
  request.path.resize(std::min(request.path.find('?'), request.path.size()));
  for (const auto& field : header) {
    std::string name(View(field.name_string()));
    std::ranges::transform(name, name.begin(),
                           [](char c) { return c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c; });
    request.headers.emplace(std::move(name), View(field.value()));
  }
  return request;
}

class Connection;

// What connections share.
struct Shared {
  HttpLimits limits;
  HttpServer::Handler handler;
  bool draining = false;  // no connection outlives its next answer
  bool stopping = false;
  std::list<std::weak_ptr<Connection>> connections;
  std::atomic<size_t> num_connections = 0;
  std::atomic<size_t> num_answering = 0;
  uint64_t body_bytes = 0;          // that connections have room for
  std::function<void()> on_closed;  // there is room for another connection
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(StreamProtocol::socket socket, std::shared_ptr<Shared> shared)
      : socket_(std::move(socket)),
        timer_(socket_.get_executor()),
        peer_timer_(socket_.get_executor()),
        shared_(std::move(shared)),
        buffer_(shared_->limits.header_bytes + kMostPerRead) {
    ++shared_->num_connections;
  }
  ~Connection() {
    KeepRoom(0);
    --shared_->num_connections;
    shared_->on_closed();
  }

  void Begin() { WaitForRequest(); }
  void Abort() {
    error_code ignored;
    timer_.cancel(ignored);
    peer_timer_.cancel(ignored);
    socket_.close(ignored);
    LoseReply();
  }
  [[nodiscard]] bool is_busy() const { return state_ == State::kAnswering; }
  [[nodiscard]] bool is_idle() const { return state_ == State::kIdle; }

 private:
  enum class State { kIdle, kReading, kAnswering, kClosing };
  class ReplyToConnection;

  void WaitForRequest();
  void ReadHeader();
  void OnHeader(const error_code& error);
  void ReadBody();
  void OnBody(const error_code& error);
  void Refuse(int status, std::string_view message) {
    RefuseWith(shared_->handler.refuse(request_, status, message));
  }
  void RefuseWith(HttpAnswer answer);
  // For a body; 0 gives it back.
  void KeepRoom(uint64_t bytes) {
    shared_->body_bytes += bytes - kept_bytes_;
    kept_bytes_ = bytes;
  }
  // Tells input, and that the peer has closed.
  void WatchInput();
  void OnInput();
  // Where input waits, so that nothing else tells that the peer has closed.
  void WatchPeer();
  void Send(HttpAnswer answer);
  void Stream(HttpAnswer answer, std::function<std::string()> take);
  void Pump();
  void Write(std::string bytes);
  void WriteNext();
  void OnWritten();
  // The answer is out.
  void EndAnswer();
  // Waits until the peer has read what was sent last, so that it is not lost with what the peer
  // still sends.
  void Drain();
  void ThrowInputAway();
  void LoseReply();
  void SetTimer(double seconds, void (Connection::*expired)());
  void Expire() { Abort(); }
  void ExpireReading() {
    if (state_ == State::kReading) Refuse(408, "the request did not come in time");
  }
  void Ping();

  template <typename Work>
  auto Bound(Work work) {
    return [self = shared_from_this(), work](const error_code& error, auto&&...) {
      if (error != asio::error::operation_aborted) work(*self, error);
    };
  }

  StreamProtocol::socket socket_;
  asio::steady_timer timer_, peer_timer_;
  const std::shared_ptr<Shared> shared_;
  State state_ = State::kIdle;
  // Bodies go elsewhere, but extensions of chunks, which no limit of a body counts, gather here.
  boost::beast::flat_buffer buffer_;
  std::optional<http::request_parser<http::string_body>> parser_;
  HttpRequest request_;      // whose body is being read
  uint64_t kept_bytes_ = 0;  // for it
  bool watching_ = false;
  bool keep_alive_ = true;
  bool head_only_ = false;
  bool ends_unheard_ = false;  // with what is being written
  bool is_http_1_0_ = false;
  std::string out_;  // being written; in the end, read to be thrown away
  size_t written_ = 0;
  bool writing_ = false;
  bool is_stream_ = false;
  bool stream_ended_ = false;
  std::function<std::string()> take_;
  std::shared_ptr<ReplyToConnection> reply_;
};

class Connection::ReplyToConnection final : public Reply {
 public:
  explicit ReplyToConnection(std::weak_ptr<Connection> connection)
      : connection_(std::move(connection)) {}
  void Send(HttpAnswer answer) override {
    if (const auto connection = connection_.lock()) connection->Send(std::move(answer));
  }
  void Stream(HttpAnswer answer, std::function<std::string()> take) override {
    const auto connection = connection_.lock();
    if (connection) connection->Stream(std::move(answer), std::move(take));
  }
  void Poke() override {
    if (const auto connection = connection_.lock()) connection->Pump();
  }
  void EndStream() override {
    const auto connection = connection_.lock();
    if (!connection) return;
    connection->stream_ended_ = true;
    connection->Pump();
  }
  void OnGone(std::function<void()> gone) override {
    is_lost_ ? gone() : static_cast<void>(gone_ = std::move(gone));
  }

  // From now on it does nothing.
  void Lose() {
    connection_.reset();
    is_lost_ = true;
    if (const auto gone = std::exchange(gone_, nullptr)) gone();
  }
  void Finish() {
    connection_.reset();
    gone_ = nullptr;
  }

 private:
  std::weak_ptr<Connection> connection_;
  std::function<void()> gone_;
  bool is_lost_ = false;
};

void Connection::SetTimer(double seconds, void (Connection::*expired)()) {
  timer_.expires_after(Seconds(seconds));
  timer_.async_wait(Bound([expired](Connection& self, const error_code& error) {
    // It may have been set anew while this call was on its way.
    const bool is_over = self.timer_.expiry() <= std::chrono::steady_clock::now();
    if (!error && is_over) (self.*expired)();
  }));
}

void Connection::WaitForRequest() {
  state_ = State::kIdle;
  if (buffer_.size() > 0) return ReadHeader();
  SetTimer(shared_->limits.idle_seconds, &Connection::Expire);
  WatchInput();
}

void Connection::WatchInput() {
  if (watching_) return;
  watching_ = true;
  socket_.async_wait(asio::socket_base::wait_read,
                     Bound([](Connection& self, const error_code& error) {
                       self.watching_ = false;
                       error ? self.Abort() : self.OnInput();
                     }));
}

void Connection::OnInput() {
  if (state_ == State::kIdle) return ReadHeader();
  if (state_ != State::kAnswering) return;
  char byte = 0;
  const ssize_t size = recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  const bool nothing = size < 0 && (errno == EAGAIN || errno == EINTR);
  if (nothing) return WatchInput();
  // The next request waits until this one is answered.
  if (size > 0) return WatchPeer();
  Abort();
}

void Connection::WatchPeer() {
  constexpr double kSeconds = 1;
  peer_timer_.expires_after(Seconds(kSeconds));
  peer_timer_.async_wait(Bound([](Connection& self, const error_code& error) {
    if (error || self.state_ != State::kAnswering) return;
    pollfd peer = {.fd = self.socket_.native_handle(), .events = POLLRDHUP, .revents = 0};
    poll(&peer, 1, 0) > 0 ? self.Abort() : self.WatchPeer();
  }));
}

void Connection::ReadHeader() {
  state_ = State::kReading;
  head_only_ = false;
  request_ = {};
  parser_.emplace();
  parser_->header_limit(shared_->limits.header_bytes);
  parser_->body_limit(shared_->limits.body_bytes);
  SetTimer(shared_->limits.header_seconds, &Connection::ExpireReading);
  http::async_read_header(socket_, buffer_, *parser_,
                          Bound([](Connection& self, const error_code& error) {
                            if (self.state_ == State::kReading) self.OnHeader(error);
                          }));
}

void Connection::OnHeader(const error_code& error) {
  if (error == http::error::header_limit) return Refuse(431, "the request's header is too long");
  if (error == http::error::body_limit) {  // its length is known by the header alone
    request_ = HeadOf(parser_->get());
    return Refuse(413, "the request's body is too long");
  }
  if (IsMalformed(error)) {
    return Refuse(400, fmt::format("not a request of HTTP: {}", error.message()));
  }
  if (error) return Abort();
  head_only_ = parser_->get().method() == http::verb::head;
  request_ = HeadOf(parser_->get());
  if (shared_->handler.admit) {
    if (auto refusal = shared_->handler.admit(&request_)) return RefuseWith(*std::move(refusal));
  }
  KeepRoom(parser_->chunked() ? shared_->limits.body_bytes : parser_->content_length().value_or(0));
  if (shared_->body_bytes > shared_->limits.all_bodies_bytes) {
    return Refuse(503, "too many bytes of requests are being read");
  }
  if (http::token_list(parser_->get()[http::field::expect]).exists("100-continue")) {
    static constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";
    asio::async_write(socket_, asio::buffer(kContinue),
                      Bound([](Connection& self, const error_code& failed) {
                        failed ? self.Abort() : self.ReadBody();
                      }));
    return;
  }
  ReadBody();
}

void Connection::ReadBody() {
  SetTimer(shared_->limits.body_seconds, &Connection::ExpireReading);
  http::async_read(socket_, buffer_, *parser_, Bound([](Connection& self, const error_code& error) {
                     if (self.state_ == State::kReading) self.OnBody(error);
                   }));
}

void Connection::OnBody(const error_code& error) {
  KeepRoom(0);
  if (error == http::error::body_limit) return Refuse(413, "the request's body is too long");
  if (error == http::error::buffer_overflow) return Refuse(431, "a chunk's header is too long");
  if (IsMalformed(error)) {
    return Refuse(400, fmt::format("not a request of HTTP: {}", error.message()));
  }
  if (error) return Abort();
  auto message = parser_->release();
  parser_.reset();
  keep_alive_ = message.keep_alive();
  is_http_1_0_ = message.version() < 11;
  request_.body = std::move(message.body());
  error_code ignored;
  timer_.cancel(ignored);
  state_ = State::kAnswering;
  is_stream_ = stream_ended_ = false;
  reply_ = std::make_shared<ReplyToConnection>(weak_from_this());
  ++shared_->num_answering;
  WatchInput();
  shared_->handler.handle(std::exchange(request_, {}), reply_);
}

void Connection::RefuseWith(HttpAnswer answer) {
  KeepRoom(0);
  keep_alive_ = false;
  state_ = State::kAnswering;
  is_stream_ = false;
  error_code ignored;
  timer_.cancel(ignored);
  Send(std::move(answer));
}

void Connection::Send(HttpAnswer answer) {
  if (shared_->draining) keep_alive_ = false;
  const std::string framing = fmt::format("Content-Length: {}\r\nConnection: {}\r\n",
                                          answer.body.size(), keep_alive_ ? "keep-alive" : "close");
  std::string bytes = Head(answer, framing);
  if (!head_only_) bytes += answer.body;
  Write(std::move(bytes));
}

void Connection::Stream(HttpAnswer answer, std::function<std::string()> take) {
  if (head_only_) {
    // It has no body; whoever would have told it hears that it is over.
    keep_alive_ = false;
    ends_unheard_ = true;
    return Write(Head(answer, "Connection: close\r\n"));
  }
  // Without chunks the end of the connection is that of the answer.
  if (is_http_1_0_) keep_alive_ = false;
  is_stream_ = true;
  take_ = std::move(take);
  const char* const framing =
      is_http_1_0_ ? "Connection: close\r\n" : "Transfer-Encoding: chunked\r\n";
  Write(Head(answer, framing));
}

// Sends what has gathered, one write at a time.
void Connection::Pump() {
  if (!is_stream_ || writing_ || state_ != State::kAnswering) return;
  std::string text = take_();
  if (!text.empty()) {
    return Write(is_http_1_0_ ? std::move(text) : fmt::format("{:x}\r\n{}\r\n", text.size(), text));
  }
  if (stream_ended_) {
    is_stream_ = false;
    return is_http_1_0_ ? EndAnswer() : Write("0\r\n\r\n");
  }
  SetTimer(shared_->limits.ping_seconds, &Connection::Ping);
}

void Connection::Ping() {
  if (!is_stream_ || writing_) return;
  constexpr std::string_view kComment = ": ping\n\n";
  Write(is_http_1_0_ ? std::string(kComment)
                     : fmt::format("{:x}\r\n{}\r\n", kComment.size(), kComment));
}

void Connection::Write(std::string bytes) {
  out_ = std::move(bytes);
  written_ = 0;
  writing_ = true;
  WriteNext();
}

void Connection::WriteNext() {
  SetTimer(shared_->limits.stall_seconds, &Connection::Expire);
  const size_t size = std::min(out_.size() - written_, kMostPerWrite);
  asio::async_write(socket_, asio::buffer(out_.data() + written_, size),
                    [self = shared_from_this(), size](const error_code& error, size_t) {
                      if (error)
                        return error == asio::error::operation_aborted ? void() : self->Abort();
                      self->written_ += size;
                      self->written_ < self->out_.size() ? self->WriteNext() : self->OnWritten();
                    });
}

void Connection::OnWritten() {
  writing_ = false;
  out_ = std::string();
  if (ends_unheard_) return Abort();
  if (is_stream_) return Pump();
  EndAnswer();
}

void Connection::EndAnswer() {
  error_code ignored;
  timer_.cancel(ignored);
  peer_timer_.cancel(ignored);
  take_ = nullptr;
  if (const auto reply = std::exchange(reply_, nullptr)) {
    --shared_->num_answering;
    reply->Finish();
  }
  if (!keep_alive_ || shared_->draining) return Drain();
  WaitForRequest();
}

void Connection::Drain() {
  state_ = State::kClosing;
  error_code ignored;
  socket_.cancel(ignored);
  socket_.shutdown(asio::socket_base::shutdown_send, ignored);
  constexpr double kSeconds = 2;
  SetTimer(kSeconds, &Connection::Expire);
  ThrowInputAway();
}

void Connection::ThrowInputAway() {
  out_.resize(kMostPerWrite);
  asio::async_read(socket_, asio::buffer(out_),
                   Bound([](Connection& self, const error_code& error) {
                     error ? self.Abort() : self.ThrowInputAway();
                   }));
}

void Connection::LoseReply() {
  state_ = State::kClosing;
  take_ = nullptr;
  if (const auto reply = std::exchange(reply_, nullptr)) {
    --shared_->num_answering;
    reply->Lose();
  }
}

}  // namespace

std::string DecodedPart(std::string_view part) {
  return store::PercentDecoded(part).value_or(std::string(part));
}

struct HttpServer::Impl {
  void Accept();
  void Drain();
  void Stop();

  asio::io_context io{1};
  Listener listener{&io};
  asio::steady_timer last_second{io};
  std::vector<std::weak_ptr<asio::steady_timer>> later;  // see PostLater()
  bool accepting = false;
  std::shared_ptr<Shared> shared = std::make_shared<Shared>();
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work;
  std::thread thread;
};

void HttpServer::Impl::Accept() {
  if (accepting || shared->stopping) return;
  if (shared->num_connections >= shared->limits.most_connections) return;
  accepting = true;
  listener.acceptor().async_accept([this](const error_code& error, StreamProtocol::socket socket) {
    accepting = false;
    if (error == asio::error::operation_aborted || shared->stopping) return;
    if (error) {
      // No file descriptors are left, for instance: later.
      last_second.expires_after(Seconds(0.1));
      return last_second.async_wait([this](const error_code& stopped) {
        if (!stopped) Accept();
      });
    }
    error_code ignored;  // sockets in the file system have no such option
    socket.set_option(asio::ip::tcp::no_delay(true), ignored);
    const auto connection = std::make_shared<Connection>(std::move(socket), shared);
    shared->connections.remove_if([](const auto& other) { return other.expired(); });
    shared->connections.push_back(connection);
    connection->Begin();
    Accept();
  });
}

void HttpServer::Impl::Drain() {
  shared->draining = true;
  const auto connections = shared->connections;
  for (const auto& weak : connections) {
    const auto connection = weak.lock();
    if (connection && connection->is_idle()) connection->Abort();
  }
}

void HttpServer::Impl::Stop() {
  shared->draining = shared->stopping = true;
  shared->on_closed = [this] {
    if (shared->num_connections == 0) last_second.cancel();
  };
  listener.Close();
  for (const auto& weak : later) {
    if (const auto timer = weak.lock()) timer->cancel();
  }
  const auto abort = [this](bool busy_too) {
    const auto connections = shared->connections;
    for (const auto& weak : connections) {
      const auto connection = weak.lock();
      if (connection && (busy_too || !connection->is_busy())) connection->Abort();
    }
  };
  abort(/*busy_too=*/false);
  work.reset();
  last_second.expires_after(Seconds(1));
  if (shared->num_connections == 0) return;
  last_second.async_wait([abort](const error_code&) { abort(/*busy_too=*/true); });
}

HttpServer::HttpServer() : impl_(std::make_unique<Impl>()) {}

Result<std::unique_ptr<HttpServer>> HttpServer::Listen(const std::string& host, uint16_t port,
                                                       const HttpLimits& limits, Handler handler) {
  std::unique_ptr<HttpServer> server(new HttpServer());
  Impl& impl = *server->impl_;
  EBB_RETURN_IF_ERROR(impl.listener.Open(host, port));
  impl.shared->limits = limits;
  impl.shared->handler = std::move(handler);
  impl.shared->on_closed = [&impl] { impl.Accept(); };
  impl.work.emplace(impl.io.get_executor());
  impl.Accept();
  return server;
}

void HttpServer::Serve() {
  impl_->thread = std::thread([impl = impl_.get()] { impl->io.run(); });
}

HttpServer::~HttpServer() {
  if (!impl_->thread.joinable()) return;
  Post([this] { impl_->Stop(); });
  impl_->thread.join();
}

void HttpServer::Drain() {
  Post([this] { impl_->Drain(); });
}

uint16_t HttpServer::port() const { return impl_->listener.port(); }
std::string HttpServer::address() const { return impl_->listener.address(); }

void HttpServer::Post(std::function<void()> work) { asio::post(impl_->io, std::move(work)); }

void HttpServer::PostLater(double seconds, std::function<void()> work) {
  const auto timer = std::make_shared<asio::steady_timer>(impl_->io, Seconds(seconds));
  std::erase_if(impl_->later, [](const auto& other) { return other.expired(); });
  impl_->later.push_back(timer);
  timer->async_wait([timer, work = std::move(work)](const error_code& error) {
    if (!error) work();
  });
}

size_t HttpServer::num_answering() const { return impl_->shared->num_answering; }
size_t HttpServer::num_connections() const { return impl_->shared->num_connections; }

}  // namespace ebb::server
