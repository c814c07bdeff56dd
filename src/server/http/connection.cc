#include "src/server/http/connection.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>

#include <fmt/format.h>

#include "src/server/http/request_head.h"

namespace ebb::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

constexpr int kClientClosedRequest = 499;
constexpr size_t kMostPerWrite = size_t{64} << 10;

std::string Head(const HttpAnswer& answer, std::string_view framing) {
  const auto known = http::obsolete_reason(http::int_to_status(answer.status));
  // Status 499 is in no standard, so Beast has no text for it; other servers and proxies use it.
  const std::string_view reason = answer.status == kClientClosedRequest
                                      ? std::string_view("Client Closed Request")
                                      : std::string_view(known.data(), known.size());
  std::string head = fmt::format("HTTP/1.1 {} {}\r\n", answer.status, reason);
  if (!answer.content_type.empty())
    head += fmt::format("Content-Type: {}\r\n", answer.content_type);
  for (const auto& [name, value] : answer.headers) head += fmt::format("{}: {}\r\n", name, value);
  return head += fmt::format("{}\r\n", framing);
}

// Returns whether `error` says that the input is no valid HTTP, and not that it ended too early.
bool IsMalformed(const error_code& error) {
  static const error_code http_error = http::make_error_code(http::error::bad_method);
  return error.category() == http_error.category() && error != http::error::end_of_stream &&
         error != http::error::partial_message;
}

// Returns whether `pending` can be the beginning of a chunk's header. Beast checks the last chunk's
// header only when all of the trailer has come, so that the connection would wait for input
// although the request is invalid already.
bool MayBeginChunk(std::string_view pending) {
  if (pending.starts_with("\r\n")) pending.remove_prefix(2);
  const size_t end = pending.find_first_not_of("0123456789abcdefABCDEF");
  return end == std::string_view::npos ||
         std::string_view("; \t\r").find(pending[end]) != std::string_view::npos;
}

}  // namespace

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
  void NotifyData() override {
    if (const auto connection = connection_.lock()) connection->Pump();
  }
  void EndStream() override {
    const auto connection = connection_.lock();
    if (!connection) return;
    connection->stream_ended_ = true;
    connection->Pump();
  }
  void OnDisconnect(std::function<void()> gone) override {
    is_lost_ ? gone() : static_cast<void>(gone_ = std::move(gone));
  }

  // Detaches the reply from its connection, which has ended: later calls do nothing. Calls the
  // function that was given to OnDisconnect().
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
    // While this call was queued, the timer may have been set to a later time.
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
  // The client has sent its next request already, which stays in the socket until this one is
  // answered.
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
  watcher_ = nullptr;
  traffic_ = {};
  parser_.emplace();
  parser_->header_limit(shared_->limits.header_bytes);
  parser_->body_limit(shared_->limits.body_bytes);
  SetTimer(shared_->limits.header_seconds, &Connection::ExpireReading);
  ReadRequestLine();
}

void Connection::ReadMore(void (Connection::*next)()) {
  const size_t size = std::min(kMostPerRead, buffer_.max_size() - buffer_.size());
  socket_.async_read_some(buffer_.prepare(size), [self = shared_from_this(), next](
                                                     const error_code& error, size_t num_read) {
    if (error == asio::error::operation_aborted || self->state_ != State::kReading) return;
    if (error) return self->Abort();
    self->buffer_.commit(num_read);
    ((*self).*next)();
  });
}

// RFC 9112, 2.2: some clients send a line end after a body, which Content-Length does not count.
// The loop skips it, since it is not part of the next request.
void Connection::ReadRequestLine() {
  const auto begins_with_line = [&] {
    const auto* const bytes = static_cast<const char*>(buffer_.data().data());
    return buffer_.size() >= 2 && bytes[0] == '\r' && bytes[1] == '\n';
  };
  while (begins_with_line()) buffer_.consume(2);
  const bool may_be_line =
      buffer_.size() == 0 ||
      (buffer_.size() == 1 && *static_cast<const char*>(buffer_.data().data()) == '\r');
  if (may_be_line) return ReadMore(&Connection::ReadRequestLine);
  http::async_read_header(socket_, buffer_, *parser_,
                          Bound([](Connection& self, const error_code& error) {
                            if (self.state_ == State::kReading) self.OnHeader(error);
                          }));
}

void Connection::OnHeader(const error_code& error) {
  if (error == http::error::header_limit) return Refuse(431, "the request's header is too long");
  if (error == http::error::body_limit) {  // Content-Length exceeds the limit
    request_ = HeadOf(parser_->get()).value_or(HttpRequest());
    return Refuse(413, "the request's body is too long");
  }
  if (IsMalformed(error)) {
    return Refuse(400, fmt::format("not a request of HTTP: {}", error.message()));
  }
  if (error) return Abort();
  head_only_ = parser_->get().method() == http::verb::head;
  std::optional<HttpRequest> request = HeadOf(parser_->get());
  if (!request.has_value()) return Refuse(400, "the request's target has no host");
  if (parser_->get().count(http::field::host) > 1) {
    return Refuse(400, "expected one Host, found several");
  }
  request_ = *std::move(request);
  BeginRequest();
  if (HasForeignTransferCoding(parser_->get())) {
    return Refuse(501, "Transfer-Encoding: expected chunked, found another coding");
  }
  if (shared_->handler.admit) {
    if (auto refusal = shared_->handler.admit(&request_)) return RefuseWith(*std::move(refusal));
  }
  const bool awaits_word =
      http::token_list(parser_->get()[http::field::expect]).exists("100-continue");
  if (awaits_word && parser_->get().version() >= 11) {
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
  parser_->eager(true);
  ParseBody();
}

void Connection::ParseBody() {
  error_code error;
  while (!parser_->is_done() && buffer_.size() > 0 && !error) {
    buffer_.consume(parser_->put(buffer_.data(), error));
  }
  if (error && error != http::error::need_more) return OnBody(error);
  if (parser_->is_done()) return OnBody({});
  const std::string_view pending(static_cast<const char*>(buffer_.data().data()), buffer_.size());
  if (!MayBeginChunk(pending)) return OnBody(http::error::bad_chunk);
  if (buffer_.size() == buffer_.max_size()) return OnBody(http::error::buffer_overflow);
  KeepRoom(parser_->get().body().size());
  // Counts the bytes received, not those announced, and never refuses a small body, so that a
  // client can block others only by sending that many bytes itself.
  const bool is_too_much = shared_->body_bytes > shared_->limits.all_bodies_bytes;
  if (is_too_much && kept_bytes_ > kSmallBody) {
    return Refuse(503, "too many bytes of requests are being read");
  }
  ReadMore(&Connection::ParseBody);
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
  traffic_.body_bytes = request_.body.size();
  error_code ignored;
  timer_.cancel(ignored);
  state_ = State::kAnswering;
  is_stream_ = stream_ended_ = false;
  reply_ = std::make_shared<ReplyToConnection>(weak_from_this());
  ++shared_->num_answering;
  WatchInput();
  shared_->handler.handle(std::exchange(request_, {}), reply_);
}

void Connection::BeginRequest() {
  request_.remote = remote_;
  if (shared_->handler.begin) shared_->handler.begin(&request_);
  watcher_ = request_.watcher;
}

void Connection::EndRequest(bool is_complete) {
  traffic_.is_complete = is_complete;
  request_.watcher = nullptr;  // not null only if the request was refused
  if (const auto watcher = std::exchange(watcher_, nullptr)) watcher->OnEnd(traffic_);
}

void Connection::Refuse(int status, std::string_view message) {
  if (watcher_ == nullptr) BeginRequest();
  RefuseWith(shared_->handler.refuse(request_, status, message));
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
  if (watcher_ != nullptr) watcher_->OnAnswer(answer);
  if (shared_->draining) keep_alive_ = false;
  const std::string framing = fmt::format("Content-Length: {}\r\nConnection: {}\r\n",
                                          answer.body.size(), keep_alive_ ? "keep-alive" : "close");
  std::string bytes = Head(answer, framing);
  if (!head_only_) bytes += answer.body;
  Write(std::move(bytes));
}

void Connection::Stream(HttpAnswer answer, std::function<std::string()> take) {
  if (watcher_ != nullptr) watcher_->OnAnswer(answer);
  if (head_only_) {
    // A response to HEAD has no body. Closing the connection after it calls the function of
    // OnDisconnect(), which ends the work for the stream.
    keep_alive_ = false;
    ends_unheard_ = true;
    return Write(Head(answer, "Connection: close\r\n"));
  }
  // HTTP/1.0 has no chunks: only the end of the connection marks the end of the answer.
  if (is_http_1_0_) keep_alive_ = false;
  is_stream_ = true;
  take_ = std::move(take);
  const char* const framing =
      is_http_1_0_ ? "Connection: close\r\n" : "Transfer-Encoding: chunked\r\n";
  Write(Head(answer, framing));
}

// Sends the data that the stream's source has collected, if no write is under way.
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
                      self->traffic_.sent_bytes += size;
                      self->written_ < self->out_.size() ? self->WriteNext() : self->OnWritten();
                    });
}

void Connection::OnWritten() {
  writing_ = false;
  out_ = std::string();
  if (ends_unheard_) {
    EndRequest(/*is_complete=*/true);
    return Abort();
  }
  if (is_stream_) return Pump();
  EndAnswer();
}

void Connection::EndAnswer() {
  error_code ignored;
  timer_.cancel(ignored);
  peer_timer_.cancel(ignored);
  take_ = nullptr;
  EndRequest(/*is_complete=*/true);
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
  EndRequest(/*is_complete=*/false);
  if (const auto reply = std::exchange(reply_, nullptr)) {
    --shared_->num_answering;
    reply->Lose();
  }
}

}  // namespace ebb::server
