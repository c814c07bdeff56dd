// Declares the options of `ebb pull` and `ebb rm` and their rows in the option table.
#ifndef EBB_APPS_OPTIONS_PULL_OPTIONS_H_
#define EBB_APPS_OPTIONS_PULL_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "apps/common/models/known_models.h"
#include "apps/common/models/model_name.h"

namespace ebb::cli {

struct OptionRow;

// NamedModel is a model that the command line names: one of KnownModels(), or one on a server.
struct NamedModel {
  const KnownModel* known = nullptr;  // null: `remote`
  std::optional<ModelName> remote = {};
};

// PullInput holds the options of `ebb pull` and `ebb rm`.
struct PullInput {
  std::vector<NamedModel> models;  // NAME...; empty: not given
  bool list = false;
};

// Appends the rows of the groups kPull and kRemove.
void AppendPullOptionRows(std::vector<OptionRow>* table);

}  // namespace ebb::cli

#endif  // EBB_APPS_OPTIONS_PULL_OPTIONS_H_
