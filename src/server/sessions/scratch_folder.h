// A folder for files of one process. What processes that were killed left behind is removed when
// another one makes its own.
#ifndef EBB_SERVER_SESSIONS_SCRATCH_FOLDER_H_
#define EBB_SERVER_SESSIONS_SCRATCH_FOLDER_H_

#include <string>

#include "ebb/status.h"

namespace ebb::server {

class ScratchFolder {
 public:
  // In the system's folder for such files. Errors: Io.
  static Result<ScratchFolder> Create();
  ScratchFolder(ScratchFolder&& other) noexcept;
  ScratchFolder& operator=(ScratchFolder&& other) noexcept;
  // Removes it with all that it holds.
  ~ScratchFolder();

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  ScratchFolder() = default;
  std::string path_;
  int lock_ = -1;  // held as long as the process lives
};

}  // namespace ebb::server

#endif  // EBB_SERVER_SESSIONS_SCRATCH_FOLDER_H_
