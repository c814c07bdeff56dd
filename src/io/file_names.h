// Resolves file names.
#ifndef EBB_IO_FILE_NAMES_H_
#define EBB_IO_FILE_NAMES_H_

#include <string>

namespace ebb {

// Returns the file that a link names, whether or not it exists; `path` itself if it is no link.
[[nodiscard]] std::string WithoutLinks(const std::string& path);

}  // namespace ebb

#endif  // EBB_IO_FILE_NAMES_H_
