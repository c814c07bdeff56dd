// Options of `ebb pull` and `ebb rm`, with their rows of the table.
#ifndef EBB_APPS_OPTIONS_PULL_OPTIONS_H_
#define EBB_APPS_OPTIONS_PULL_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "apps/common/models/known_models.h"
#include "apps/common/models/model_name.h"

namespace ebb::cli {

struct OptionRow;

// A model that has a name: one of the table, or one that lies elsewhere.
struct NamedModel {
  const KnownModel* known = nullptr;  // null: `remote`
  std::optional<ModelName> remote = {};
};

struct PullInput {
  std::vector<NamedModel> models;  // NAME...; empty: not given
  bool list = false;
};

// Appends the rows of the groups kPull and kRemove.
void AppendPullOptionRows(std::vector<OptionRow>* table);

}  // namespace ebb::cli

#endif  // EBB_APPS_OPTIONS_PULL_OPTIONS_H_
