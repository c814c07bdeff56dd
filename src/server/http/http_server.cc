#include "src/server/http/http_server.h"

#include <algorithm>
#include <list>
#include <optional>
#include <thread>

#include <boost/asio.hpp>

#include "src/server/http/connection.h"
#include "src/server/http/listener.h"
#include "src/store/percent_encoding.h"

namespace ebb::server {
namespace {

namespace asio = boost::asio;
using boost::system::error_code;

// Returns the address of the peer without its port, "127.0.0.1" or "::1"; "unix" for a socket in
// the file system; "-" if the peer is unknown.
std::string RemoteOf(const StreamProtocol::socket& socket) {
  error_code error;
  const StreamProtocol::endpoint peer = socket.remote_endpoint(error);
  if (error) return "-";
  const auto endpoint = AsTcp(peer);
  if (!endpoint.has_value()) return "unix";
  const asio::ip::address address = endpoint->address();
  const bool is_mapped = address.is_v6() && address.to_v6().is_v4_mapped();
  return is_mapped ? asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string()
                   : address.to_string();
}

class ChangingReply final : public Reply {
 public:
  ChangingReply(std::shared_ptr<Reply> reply, std::function<HttpAnswer(HttpAnswer)> change)
      : reply_(std::move(reply)), change_(std::move(change)) {}
  void Send(HttpAnswer answer) override { reply_->Send(change_(std::move(answer))); }
  void Stream(HttpAnswer answer, std::function<std::string()> take) override {
    reply_->Stream(change_(std::move(answer)), std::move(take));
  }
  void NotifyData() override { reply_->NotifyData(); }
  void EndStream() override { reply_->EndStream(); }
  void OnDisconnect(std::function<void()> gone) override { reply_->OnDisconnect(std::move(gone)); }

 private:
  const std::shared_ptr<Reply> reply_;
  const std::function<HttpAnswer(HttpAnswer)> change_;
};

}  // namespace

std::shared_ptr<Reply> WithChangedAnswers(std::shared_ptr<Reply> reply,
                                          std::function<HttpAnswer(HttpAnswer)> change) {
  return std::make_shared<ChangingReply>(std::move(reply), std::move(change));
}

std::string DecodedPart(std::string_view part) {
  return store::PercentDecoded(part).value_or(std::string(part));
}

struct HttpServer::Impl {
  // Begins to accept at all addresses, unless HttpLimits::most_connections are open.
  void Accept();
  void AcceptAt(size_t index);
  void Begin(StreamProtocol::socket socket);
  void Drain();
  void Stop();

  asio::io_context io{1};
  Listener listener{&io};
  asio::steady_timer last_second{io};
  // Has the timers of PostLater(), so that Stop() can cancel them.
  std::vector<std::weak_ptr<asio::steady_timer>> later;
  std::vector<char> is_accepting;  // [acceptors]
  std::shared_ptr<SharedByConnections> shared = std::make_shared<SharedByConnections>();
  std::optional<asio::executor_work_guard<asio::io_context::executor_type>> work;
  std::thread thread;
};

void HttpServer::Impl::Accept() {
  is_accepting.resize(listener.acceptors().size());
  for (size_t i = 0; i < is_accepting.size(); ++i) AcceptAt(i);
}

// Accepts connections at the address `index`. With several addresses, each may accept one
// connection beyond HttpLimits::most_connections.
void HttpServer::Impl::AcceptAt(size_t index) {
  if (is_accepting[index] || shared->stopping) return;
  if (shared->num_connections >= shared->limits.most_connections) return;
  is_accepting[index] = true;
  const auto take = [this, index](const error_code& error, StreamProtocol::socket socket) {
    is_accepting[index] = false;
    if (error == asio::error::operation_aborted || shared->stopping) return;
    if (error) {
      // Accepting has failed, for instance for lack of file descriptors; tries again later.
      last_second.expires_after(Seconds(0.1));
      return last_second.async_wait([this](const error_code& stopped) {
        if (!stopped) Accept();
      });
    }
    Begin(std::move(socket));
    AcceptAt(index);
  };
  listener.acceptors()[index].async_accept(take);
}

void HttpServer::Impl::Begin(StreamProtocol::socket socket) {
  error_code ignored;  // sockets in the file system lack this option; ignored
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  std::string remote = RemoteOf(socket);
  const auto connection =
      std::make_shared<Connection>(std::move(socket), std::move(remote), shared);
  shared->connections.remove_if([](const auto& other) { return other.expired(); });
  shared->connections.push_back(connection);
  connection->Begin();
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
  EBB_RETURN_IF_ERROR(server->impl_->listener.Open(host, port));
  server->Begin(limits, std::move(handler));
  return server;
}

Result<std::unique_ptr<HttpServer>> HttpServer::Adopt(const std::vector<int>& sockets,
                                                      const HttpLimits& limits, Handler handler) {
  std::unique_ptr<HttpServer> server(new HttpServer());
  EBB_RETURN_IF_ERROR(server->impl_->listener.Adopt(sockets));
  server->Begin(limits, std::move(handler));
  return server;
}

void HttpServer::Begin(const HttpLimits& limits, Handler handler) {
  Impl& impl = *impl_;
  impl.shared->limits = limits;
  impl.shared->handler = std::move(handler);
  impl.shared->on_closed = [&impl] { impl.Accept(); };
  impl.work.emplace(impl.io.get_executor());
  impl.Accept();
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
std::vector<std::string> HttpServer::addresses() const { return impl_->listener.addresses(); }

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
