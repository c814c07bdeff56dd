#include "apps/ebb/serve/passed_sockets.h"

#include <charconv>
#include <cstdlib>
#include <limits>
#include <optional>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace ebb::cli {
namespace {

constexpr int kFirstPassed = 3;
constexpr int kMostPassed = 64;

Result<int> ReadVariable(std::string_view name, std::string_view text, int most) {
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size() && number >= 1 && number <= most) {
    return number;
  }
  return InvalidArgument(
      fmt::format("the environment variable {}: expected a number from 1 to {}, "
                  "found \"{}\"",
                  name, most, text));
}

}  // namespace

Result<PassedSockets> ReadPassedSockets(const char* process, const char* number,
                                        pid_t own_process) {
  PassedSockets sockets;
  if (number == nullptr) return sockets;
  EBB_ASSIGN_OR_RETURN(const int count, ReadVariable("LISTEN_FDS", number, kMostPassed));
  if (process == nullptr) {
    sockets.ignored = "LISTEN_FDS is ignored: LISTEN_PID, the process that it is for, is not set";
    return sockets;
  }
  EBB_ASSIGN_OR_RETURN(const int for_process,
                       ReadVariable("LISTEN_PID", process, std::numeric_limits<int>::max()));
  if (for_process != own_process) {
    sockets.ignored = fmt::format(
        "LISTEN_FDS is ignored: LISTEN_PID says that it is for process {}, and this is process {}",
        for_process, own_process);
    return sockets;
  }
  for (int i = 0; i < count; ++i) sockets.descriptors.push_back(kFirstPassed + i);
  return sockets;
}

Result<PassedSockets> TakePassedSockets() {
  auto sockets = ReadPassedSockets(std::getenv("LISTEN_PID"), std::getenv("LISTEN_FDS"), getpid());
  for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) unsetenv(name);
  if (!sockets.ok()) return sockets;
  for (const int socket : sockets->descriptors) (void)fcntl(socket, F_SETFD, FD_CLOEXEC);
  return sockets;
}

}  // namespace ebb::cli
