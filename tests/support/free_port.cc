#include "tests/support/free_port.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace ebb {

uint16_t FreePort() {
  constexpr int kFirst = 20'000, kNum = 12'000;
  static int next = getpid() * 101;
  for (int i = 0; i < kNum; ++i) {
    const auto port = static_cast<uint16_t>(kFirst + next++ % kNum);
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    const bool is_free = bind(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
    close(socket);
    if (is_free) return port;
  }
  ADD_FAILURE() << "no port is free";
  return kFirst;
}

}  // namespace ebb
