// Sockets that already listen, from a service manager (sd_listen_fds(3)).
#ifndef EBB_APPS_SERVE_PASSED_SOCKETS_H_
#define EBB_APPS_SERVE_PASSED_SOCKETS_H_

#include <string>
#include <vector>

#include <sys/types.h>

#include "ebb/status.h"

namespace ebb::cli {

struct PassedSockets {
  std::vector<int> descriptors;
  // The reason why LISTEN_FDS has no effect, for the log; empty: it has one, or is not set.
  std::string ignored;
};

// Reads the values of LISTEN_PID and LISTEN_FDS, null for a variable that is not set: LISTEN_FDS
// descriptors from 3 on, for the process LISTEN_PID. Errors: InvalidArgument: one of the two is no
// number in its range.
[[nodiscard]] Result<PassedSockets> ReadPassedSockets(const char* process, const char* number,
                                                      pid_t own_process);
// Reads the variables of this process and unsets them, so that programs that it starts get no
// socket, neither by these variables nor as an open descriptor.
[[nodiscard]] Result<PassedSockets> TakePassedSockets();

}  // namespace ebb::cli

#endif  // EBB_APPS_SERVE_PASSED_SOCKETS_H_
