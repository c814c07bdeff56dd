// Receives listening sockets from a service manager (sd_listen_fds(3)).
#ifndef EBB_APPS_SERVE_PASSED_SOCKETS_H_
#define EBB_APPS_SERVE_PASSED_SOCKETS_H_

#include <string>
#include <vector>

#include <sys/types.h>

#include "ebb/status.h"

namespace ebb::cli {

// PassedSockets are the listening sockets that a service manager, such as systemd, passes to the
// process.
struct PassedSockets {
  std::vector<int> descriptors;
  // Holds the reason why LISTEN_FDS has no effect, for the log; empty if it has one or is not set.
  std::string ignored;
};

// Parses the values of LISTEN_PID and LISTEN_FDS (null if unset): LISTEN_FDS is the number of
// descriptors, from 3 on, for the process LISTEN_PID. Errors: InvalidArgument if one of them is not
// a number in its range.
[[nodiscard]] Result<PassedSockets> ReadPassedSockets(const char* process, const char* number,
                                                      pid_t own_process);
// Parses the variables of this process, then unsets them and marks the sockets close-on-exec, so
// that child processes inherit neither.
[[nodiscard]] Result<PassedSockets> TakePassedSockets();

}  // namespace ebb::cli

#endif  // EBB_APPS_SERVE_PASSED_SOCKETS_H_
