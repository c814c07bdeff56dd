// The names of files.
#ifndef EBB_IO_FILE_NAMES_H_
#define EBB_IO_FILE_NAMES_H_

#include <string>

namespace ebb {

// Returns whether the open file is still the regular file of that name. Another process may have
// renamed or removed it since it was opened.
[[nodiscard]] bool IsFileOf(int fd, const std::string& name);
// Returns the file that a link names, whether or not it exists; `path` itself if it is no link.
[[nodiscard]] std::string WithoutLinks(const std::string& path);

}  // namespace ebb

#endif  // EBB_IO_FILE_NAMES_H_
