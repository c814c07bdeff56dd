#include "tests/server/client.h"

#include <algorithm>
#include <cctype>
#include <sstream>

#include <fmt/format.h>
#include <boost/asio.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http.hpp>

namespace ebb::server {
namespace {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

}  // namespace

nlohmann::json ClientAnswer::json() const { return nlohmann::json::parse(body, nullptr, false); }

std::vector<std::string> ClientAnswer::events() const {
  std::vector<std::string> events;
  std::istringstream lines(body);
  constexpr std::string_view kData = "data: ";
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with(kData)) events.push_back(line.substr(kData.size()));
  }
  return events;
}

struct Client::Impl {
  asio::io_context io;
  asio::generic::stream_protocol::socket socket{io};
  boost::beast::flat_buffer buffer;
};

Client::Client(uint16_t port, int receive_buffer_bytes) : impl_(std::make_unique<Impl>()) {
  const asio::ip::tcp::endpoint endpoint(asio::ip::make_address("127.0.0.1"), port);
  impl_->socket.open(endpoint.protocol());
  if (receive_buffer_bytes > 0) {
    impl_->socket.set_option(asio::socket_base::receive_buffer_size(receive_buffer_bytes));
  }
  impl_->socket.connect(endpoint);
}
Client::Client(const std::string& path) : impl_(std::make_unique<Impl>()) {
  impl_->socket.connect(asio::local::stream_protocol::endpoint(path));
}
Client::~Client() = default;

void Client::Send(std::string_view bytes) {
  error_code ignored;
  asio::write(impl_->socket, asio::buffer(bytes), ignored);
}

bool Client::TrySend(std::string_view bytes) {
  error_code error;
  asio::write(impl_->socket, asio::buffer(bytes), error);
  return !error;
}

void Client::CloseSending() {
  error_code ignored;
  impl_->socket.shutdown(asio::socket_base::shutdown_send, ignored);
}

ClientAnswer Client::Receive() {
  http::response_parser<http::string_body> parser;
  parser.body_limit(boost::none);
  error_code error;
  http::read(impl_->socket, impl_->buffer, parser, error);
  ClientAnswer answer;
  if (error && !parser.is_header_done()) return answer;
  answer.status = static_cast<int>(parser.get().result_int());
  answer.body = parser.get().body();
  for (const auto& field : parser.get()) {
    std::string name(field.name_string().data(), field.name_string().size());
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    answer.headers[name] = std::string(field.value().data(), field.value().size());
  }
  return answer;
}

std::string Client::ReceiveSome(size_t num_bytes) {
  error_code ignored;
  std::string bytes;
  asio::read(impl_->socket, asio::dynamic_buffer(bytes), asio::transfer_at_least(num_bytes),
             ignored);
  return bytes;
}

bool Client::IsClosedByServer() {
  error_code error;
  std::string bytes;
  asio::read(impl_->socket, asio::dynamic_buffer(bytes), asio::transfer_all(), error);
  return error == asio::error::eof || error == asio::error::connection_reset;
}

std::string Client::Request(const std::string& method, const std::string& path,
                            const std::string& body, const std::string& more_headers) {
  return fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: {}\r\n\r\n{}", method,
                     path, more_headers, body.size(), body);
}

ClientAnswer Client::Get(const std::string& path) {
  Send(Request("GET", path));
  return Receive();
}

ClientAnswer Client::Post(const std::string& path, const std::string& body) {
  Send(Request("POST", path, body, "Content-Type: application/json\r\n"));
  return Receive();
}

ClientAnswer Client::Post(const std::string& path, const nlohmann::json& body) {
  return Post(path, body.dump());
}

}  // namespace ebb::server
