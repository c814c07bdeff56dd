// The names of files.
#ifndef EBB_IO_FILE_NAMES_H_
#define EBB_IO_FILE_NAMES_H_

#include <string>

namespace ebb {

// Whether the open file is still the regular file of that name: it may have been renamed meanwhile.
[[nodiscard]] bool IsFileOf(int fd, const std::string& name);
// The file that a link names, also where it is not there yet; `path` itself where it is no link.
[[nodiscard]] std::string WithoutLinks(const std::string& path);

}  // namespace ebb

#endif  // EBB_IO_FILE_NAMES_H_
