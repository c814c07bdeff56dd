#include "apps/ebb/options/pull_options.h"

#include <fmt/format.h>

#include "apps/ebb/options/option_values.h"
#include "apps/ebb/options/options.h"

namespace ebb::cli {
namespace {

Status ReadModelName(std::string_view text, CliOptions* options) {
  const KnownModel* model = FindKnownModel(text);
  if (model == nullptr) {
    return InvalidArgument(
        fmt::format("expected one of {}, found \"{}\"", KnownModelNames(), text));
  }
  options->pull.models.push_back(model);
  return OkStatus();
}

}  // namespace

void AppendPullOptionRows(std::vector<OptionRow>* table) {
  using G = OptionGroup;
  const std::vector<OptionRow> rows = {
      {G::kPull, "NAME", "NAME",
       fmt::format("models to fetch: any of {}; without a name, {}", KnownModelNames(),
                   KnownModels().front().name),
       ReadModelName, nullptr},
      FlagRow(
          G::kPull, "--list",
          "fetch nothing: print the models, all or those named, with licence, size and file",
          [](CliOptions& o) { return &o.pull.list; }, true),
  };
  table->insert(table->end(), rows.begin(), rows.end());
}

}  // namespace ebb::cli
