// The folder FILE.parts, next to a model's file, in which a model that comes in parts is put
// together. It outlives the process, so that the parts that are complete need not be fetched again.
#ifndef EBB_APPS_PULL_PARTS_FOLDER_H_
#define EBB_APPS_PULL_PARTS_FOLDER_H_

#include <memory>
#include <string>

#include "apps/common/models/known_models.h"
#include "ebb/status.h"

namespace ebb::cli {

// Thread safety: one thread at a time. One process at a time holds the folder of a model.
class PartsFolder {
 public:
  // Makes the folder where there is none. `model` outlives the result. Errors: kIo when that is
  // refused, or when another process holds the folder.
  static Result<std::unique_ptr<PartsFolder>> Open(const KnownModel& model,
                                                   const std::string& path);
  // Removes all but the complete parts; the folder too, when there are none.
  ~PartsFolder();
  PartsFolder(const PartsFolder&) = delete;
  PartsFolder& operator=(const PartsFolder&) = delete;

  [[nodiscard]] const std::string& path() const { return folder_; }
  // The file that has the complete parts, in order.
  [[nodiscard]] std::string joined() const { return folder_ + "/joined"; }
  // The folder for packages and their unpacked files.
  [[nodiscard]] std::string incoming() const { return folder_ + "/incoming"; }
  [[nodiscard]] int num_parts() const { return num_parts_; }

  // Empties incoming(). Errors: kIo.
  Status EmptyIncoming();
  // Appends the file `part`, which is the next part. Errors: kIo; then no piece of it stays.
  Status Append(const std::string& part);
  // Renames joined(), once it is safely on the disk. Errors: kIo.
  Status MoveJoinedTo(const std::string& path);
  // No part is kept.
  void Drop() { num_parts_ = 0; }

 private:
  class OpenFile;

  PartsFolder(const KnownModel& model, const std::string& path);
  Status Lock();
  Status CutOffIncompletePart();

  const KnownModel& model_;
  std::string folder_;
  std::unique_ptr<OpenFile> lock_;  // null until the folder is held
  int num_parts_ = 0;
};

// How many parts the folder beside `path` has; 0 where there is none.
[[nodiscard]] int NumPartsKept(const KnownModel& model, const std::string& path);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_PARTS_FOLDER_H_
