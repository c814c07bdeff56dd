#include "apps/ebb/pull/pull_options.h"

#include <utility>

#include <fmt/format.h>

#include "apps/common/options/option_values.h"
#include "apps/common/options/options.h"

namespace ebb::cli {
namespace {

Status ReadModelName(std::string_view text, CliOptions* options) {
  NamedModel model = {.known = FindKnownModel(text)};
  if (model.known == nullptr) {
    if (!IsModelName(text)) {
      const std::string meant = MeantModel(text);
      return InvalidArgument(fmt::format(
          "expected {}, or one of {}, found \"{}\"; did you mean {}? `ebb list` shows the models "
          "that are here",
          kModelNameForms, KnownModelNames(), text,
          meant.empty() ? fmt::format("ollama:{}", text) : meant));
    }
    EBB_ASSIGN_OR_RETURN(model.remote, ParseModelName(text));
  }
  options->Of<PullInput>().models.push_back(std::move(model));
  return OkStatus();
}

}  // namespace

void AppendPullOptionRows(std::vector<OptionRow>* table) {
  using G = OptionGroup;
  const std::vector<OptionRow> rows = {
      {G::kPull, "NAME", "NAME",
       fmt::format("models to fetch: {}, or, from a mirror, any of {}; without a name, {}",
                   kModelNameForms, KnownModelNames(), KnownModels().front().name),
       ReadModelName, nullptr},
      FlagRow(
          G::kPull, "--list",
          "download nothing: print the models, all or those named, with licence, size and file",
          [](CliOptions& o) { return &o.Of<PullInput>().list; }, true),
      {G::kRemove, "NAME", "NAME", "models to remove, by the names that `ebb list` shows",
       ReadModelName, nullptr},
  };
  table->insert(table->end(), rows.begin(), rows.end());
}

}  // namespace ebb::cli
