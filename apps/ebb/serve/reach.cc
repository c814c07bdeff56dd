#include "apps/ebb/serve/reach.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string_view>

namespace ebb::cli {
namespace {

// Returns whether a server at `address` is reached by this machine alone.
bool IsLocal(std::string_view address) {
  return address.starts_with("127.") || address.starts_with("[::1]") ||
         address.starts_with("unix:");
}

}  // namespace

std::string AddressOnNetwork(bool is_v6) {
  // Connecting a UDP socket chooses a route and sends nothing. The addresses are those of
  // documentation, which no host has.
  sockaddr_in v4 = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {}, .sin_zero = {}};
  sockaddr_in6 v6 = {};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(9);
  inet_pton(AF_INET, "192.0.2.1", &v4.sin_addr);
  inet_pton(AF_INET6, "2001:db8::1", &v6.sin6_addr);
  auto* const address = is_v6 ? reinterpret_cast<sockaddr*>(&v6) : reinterpret_cast<sockaddr*>(&v4);
  socklen_t size = is_v6 ? sizeof(v6) : sizeof(v4);
  const int socket = ::socket(address->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return "";
  const bool is_known =
      connect(socket, address, size) == 0 && getsockname(socket, address, &size) == 0;
  close(socket);
  char text[INET6_ADDRSTRLEN] = {};
  const void* const bytes =
      is_v6 ? static_cast<const void*>(&v6.sin6_addr) : static_cast<const void*>(&v4.sin_addr);
  if (!is_known || inet_ntop(address->sa_family, bytes, text, sizeof(text)) == nullptr) return "";
  return is_v6 ? fmt::format("[{}]", text) : std::string(text);
}

std::string KeysText(std::string_view file, size_t num_keys, bool lacks_admin) {
  std::string text = fmt::format(
      "ebb: requests need {} of {}\n",
      num_keys == 1 ? std::string("the API key") : fmt::format("one of the {} API keys", num_keys),
      file);
  if (lacks_admin) {
    text += "ebb: none is an admin's, which the dashboard needs: --new-key NAME --admin\n";
  }
  return text;
}

std::string ReachText(std::span<const std::string> addresses, bool has_keys,
                      const std::function<std::string(bool is_v6)>& own_address) {
  std::string text;
  bool is_reached = false;
  for (const std::string& address : addresses) {
    if (IsLocal(address)) continue;
    is_reached = true;
    const bool is_v6 = address.starts_with("[::]:");
    if (!is_v6 && !address.starts_with("0.0.0.0:")) continue;
    const std::string own = own_address(is_v6);
    if (own.empty()) continue;
    text += fmt::format("ebb: other devices of this network open http://{}{}\n", own,
                        address.substr(address.rfind(':')));
  }
  if (is_reached && !has_keys) {
    text +=
        "ebb: every client that connects can use this server, since it has no API keys: "
        "--api-keys FILE --new-key NAME makes one\n";
  }
  return text;
}

}  // namespace ebb::cli
