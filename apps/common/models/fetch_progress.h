// Shows the progress of a download: as a bar on a terminal, elsewhere as a line for each tenth.
#ifndef EBB_APPS_PULL_FETCH_PROGRESS_H_
#define EBB_APPS_PULL_FETCH_PROGRESS_H_

#include <cstdint>
#include <memory>
#include <string>

#include "apps/common/terminal/progress.h"

namespace ebb::cli {

// FetchProgress shows how much of a file was fetched, unless `quiet`.
class FetchProgress {
 public:
  FetchProgress(std::string name, bool quiet) : name_(std::move(name)), quiet_(quiet) {}

  // Shows `done` of `total` bytes; `total` is 0 if the size is unknown.
  void Update(uint64_t done, uint64_t total);

 private:
  std::string name_;
  bool quiet_;
  std::unique_ptr<ProgressBar> bar_;
  uint64_t tenths_said_ = 0;
};

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_FETCH_PROGRESS_H_
