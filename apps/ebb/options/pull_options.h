// Options of `ebb pull`, with their rows of the table.
#ifndef EBB_APPS_OPTIONS_PULL_OPTIONS_H_
#define EBB_APPS_OPTIONS_PULL_OPTIONS_H_

#include <vector>

#include "apps/ebb/pull/known_models.h"

namespace ebb::cli {

struct OptionRow;

struct PullInput {
  std::vector<const KnownModel*> models;  // NAME...; empty: not given
  bool list = false;
};

// Appends the rows of the group kPull.
void AppendPullOptionRows(std::vector<OptionRow>* table);

}  // namespace ebb::cli

#endif  // EBB_APPS_OPTIONS_PULL_OPTIONS_H_
