// A client that sends what it is told, byte for byte, and waits for answers as long as it must.
#ifndef EBB_TESTS_SERVER_CLIENT_H_
#define EBB_TESTS_SERVER_CLIENT_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace ebb::server {

struct ClientAnswer {
  int status = 0;                              // 0: the connection was closed without one
  std::map<std::string, std::string> headers;  // names in small letters
  std::string body;

  [[nodiscard]] nlohmann::json json() const;
  // Data of the events of a stream, comments left out.
  [[nodiscard]] std::vector<std::string> events() const;
};

class Client {
 public:
  // receive_buffer_bytes: of the system; 0: as many as it likes.
  explicit Client(uint16_t port, int receive_buffer_bytes = 0);
  // Connects to a socket in the file system.
  explicit Client(const std::string& path);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void Send(std::string_view bytes);
  // False: the server took no more, or closed the connection.
  [[nodiscard]] bool TrySend(std::string_view bytes);
  // Nothing more will be sent; what comes can still be read.
  void CloseSending();
  // A whole answer of a request that was sent.
  [[nodiscard]] ClientAnswer Receive();
  // At least so many bytes of whatever comes; fewer where the connection ends.
  [[nodiscard]] std::string ReceiveSome(size_t num_bytes);
  // Whether the server closes the connection, sooner or later.
  [[nodiscard]] bool IsClosedByServer();

  [[nodiscard]] ClientAnswer Get(const std::string& path);
  [[nodiscard]] ClientAnswer Post(const std::string& path, const std::string& body);
  [[nodiscard]] ClientAnswer Post(const std::string& path, const nlohmann::json& body);
  static std::string Request(const std::string& method, const std::string& path,
                             const std::string& body = "", const std::string& more_headers = "");

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ebb::server

#endif  // EBB_TESTS_SERVER_CLIENT_H_
