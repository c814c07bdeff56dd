// Reads files that options name and that must be held whole in memory.
#ifndef EBB_APPS_OPTIONS_WHOLE_FILE_H_
#define EBB_APPS_OPTIONS_WHOLE_FILE_H_

#include <cstddef>
#include <string>

#include "ebb/status.h"

namespace ebb::cli {

inline constexpr size_t kMostWholeFileBytes = size_t{1} << 30;

// Returns the content of a regular file. Refuses other files, since opening a named pipe would wait
// for its other end and a device such as /dev/zero never ends. Errors, which name the path:
// NotFound; InvalidArgument (no permission, not a regular file, more than `most_bytes`); IoError
// (the system cannot read the file).
[[nodiscard]] Result<std::string> ReadWholeFile(const std::string& path,
                                                size_t most_bytes = kMostWholeFileBytes);

}  // namespace ebb::cli

#endif  // EBB_APPS_OPTIONS_WHOLE_FILE_H_
