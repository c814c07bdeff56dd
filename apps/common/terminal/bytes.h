// Formats numbers of bytes for people.
#ifndef EBB_APPS_TERMINAL_BYTES_H_
#define EBB_APPS_TERMINAL_BYTES_H_

#include <string>

#include <fmt/format.h>

namespace ebb::cli {

// Returns a number of mebibytes without its unit, such as "36.1", for a table whose head says MiB.
[[nodiscard]] inline std::string InMiB(double bytes) {
  return fmt::format("{:.1f}", bytes / (1 << 20));
}
}  // namespace ebb::cli

#endif  // EBB_APPS_TERMINAL_BYTES_H_
