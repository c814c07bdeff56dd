// Manages the folder FILE.parts next to a model's file, in which the parts of a model are joined.
// The folder outlives the process, so that complete parts need not be fetched again.
#ifndef EBB_APPS_PULL_PARTS_FOLDER_H_
#define EBB_APPS_PULL_PARTS_FOLDER_H_

#include <memory>
#include <string>

#include "apps/common/models/known_models.h"
#include "ebb/status.h"
#include "src/base/files/locked_file.h"

namespace ebb::cli {

// PartsFolder keeps the complete parts of an unfinished fetch on the disk, so that the next fetch
// resumes after them. Thread safety: one thread at a time. Only one process at a time can open the
// folder of a model.
class PartsFolder {
 public:
  // Opens the folder next to `path`, and creates it if it is missing. `model` must outlive the
  // result. Errors: kIo if the system refuses, or another process has the folder open.
  static Result<std::unique_ptr<PartsFolder>> Open(const KnownModel& model,
                                                   const std::string& path);
  // Removes everything but the complete parts; removes the folder too if there are none.
  ~PartsFolder();
  PartsFolder(const PartsFolder&) = delete;
  PartsFolder& operator=(const PartsFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return folder_; }
  // Returns the path of the file that holds the complete parts, one after the other.
  [[nodiscard]] std::string joined() const { return folder_ + "/joined"; }
  // Returns the path of the folder for packages and their unpacked files.
  [[nodiscard]] std::string incoming() const { return folder_ + "/incoming"; }
  [[nodiscard]] int num_parts() const { return num_parts_; }

  // Removes all files in incoming(). Errors: kIo.
  Status EmptyIncoming();
  // Appends the file `part`, which must be the next part. Errors: kIo; no bytes of `part` stay
  // then.
  Status Append(const std::string& part);
  // Renames joined() to `path` after an fsync. Errors: kIo.
  Status MoveJoinedTo(const std::string& path);
  // Drops all parts: the destructor removes the folder.
  void Drop() { num_parts_ = 0; }

 private:
  PartsFolder(const KnownModel& model, const std::string& path);
  Status Lock();
  Status CutOffIncompletePart();

  const KnownModel& model_;
  std::string folder_;
  FileDescriptor lock_;  // open while the folder is held
  int num_parts_ = 0;
};

// Returns the number of complete parts in the folder next to `path`; 0 if there is no folder.
[[nodiscard]] int NumPartsKept(const KnownModel& model, const std::string& path);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_PARTS_FOLDER_H_
