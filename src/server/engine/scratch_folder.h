// ScratchFolder is a folder for the temporary files of one process. Creating one removes the
// folders of processes that were killed.
#ifndef EBB_SERVER_ENGINE_SCRATCH_FOLDER_H_
#define EBB_SERVER_ENGINE_SCRATCH_FOLDER_H_

#include <string>
#include <string_view>

#include "ebb/status.h"
#include "src/base/files/locked_file.h"

namespace ebb::server {

// Returns a path in `folder` that no other call in this process returns. `kind` makes the name
// readable: "fetched" gives "FOLDER/fetched-7". Thread safety: may be called from any thread.
[[nodiscard]] std::string NewScratchPath(std::string_view folder, std::string_view kind);

class ScratchFolder {
 public:
  // Creates the folder in the system's folder for temporary files. Errors: Io.
  static Result<ScratchFolder> Create();
  ScratchFolder(ScratchFolder&& other) noexcept;
  ScratchFolder& operator=(ScratchFolder&& other) noexcept;
  // Removes the folder with its contents.
  ~ScratchFolder();

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  ScratchFolder() = default;
  std::string path_;
  FileDescriptor lock_;  // locked until the process ends
};

}  // namespace ebb::server

#endif  // EBB_SERVER_ENGINE_SCRATCH_FOLDER_H_
