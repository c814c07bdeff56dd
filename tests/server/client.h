// Client sends given bytes unchanged and waits for answers as long as needed.
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
  int status = 0;                              // 0: the connection was closed without an answer
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;

  [[nodiscard]] nlohmann::json json() const;
  // Returns the data of a stream's events, without comments.
  [[nodiscard]] std::vector<std::string> events() const;
};

class Client {
 public:
  // Connects to a port. `receive_buffer_bytes`: size of the system's buffer; 0: the default.
  explicit Client(uint16_t port, int receive_buffer_bytes = 0);
  // Connects to a socket in the file system.
  explicit Client(const std::string& path);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  void Send(std::string_view bytes);
  // Sends bytes. Returns false if the server accepted no more or closed the connection.
  [[nodiscard]] bool TrySend(std::string_view bytes);
  // Closes the sending side; answers can still be received.
  void CloseSending();
  // Receives the whole answer to a request that was sent.
  [[nodiscard]] ClientAnswer Receive();
  // Receives at least `num_bytes` bytes of whatever comes; fewer if the connection ends.
  [[nodiscard]] std::string ReceiveSome(size_t num_bytes);
  // Waits, and returns whether the server closes the connection.
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
