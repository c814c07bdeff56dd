#include "apps/common/options/fit_options.h"

#include <string_view>

#include "apps/common/options/option_values.h"
#include "apps/common/options/options.h"
#include "src/base/text/size_text.h"

namespace ebb::cli {

void AppendFitOptionRows(std::vector<OptionRow>* table) {
  using G = OptionGroup;
  const std::vector<OptionRow> rows = {
      {G::kMemory, "--memory", "SIZE",
       "all the memory that the program may take, such as 6GiB: ebb selects the gentlest setting "
       "of the tiers that fits; options of the tiers that are given stay, and are checked. With "
       "--device: the limit of the device's memory",
       [](std::string_view text, CliOptions* options) {
         EBB_RETURN_IF_ERROR(CheckHasUnit(text, "GiB"));
         EBB_ASSIGN_OR_RETURN(options->fit.memory_bytes, ParseBytes(text));
         return OkStatus();
       },
       nullptr},
      ChoiceRow<ExpectedMarks>(
          G::kMemory, "--expect",
          "the rows that --policy dms is expected to evict when memory is predicted: none, which "
          "no "
          "text exceeds (guaranteed), or as many as the model was trained to evict (trained)",
          [](CliOptions& o) { return &o.fit.marks; },
          {{"guaranteed", ExpectedMarks::kNone}, {"trained", ExpectedMarks::kTrained}}),
      {G::kFit, "--prompt-tokens", "N",
       "count one prompt of N tokens and its answer, as `ebb run` takes them; without it fit "
       "counts "
       "a conversation, as `ebb chat` and `ebb serve` hold it: prompts of half of the context, at "
       "any time",
       [](std::string_view text, CliOptions* options) {
         return ParseValue(text, {.min = 0}, &options->fit.prompt_tokens);
       },
       nullptr},
      ValueRow(G::kFit, "--requests", "K", "sequences at once",
               [](CliOptions& o) { return &o.fit.requests; }, {.min = 1, .max = 65536}),
      FlagRow(
          G::kFit, "--list",
          "show for each model that `ebb pull --list` names whether it fits, and with which tiers; "
          "downloads nothing",
          [](CliOptions& o) { return &o.fit.list; }, true),
      FlagRow(
          G::kFit, "--measure",
          "predict tokens/s from decode steps of the model and from attention to rows of each "
          "format, which takes some seconds; without it they are bounds by the bandwidths",
          [](CliOptions& o) { return &o.fit.measure; }, true),
  };
  table->insert(table->end(), rows.begin(), rows.end());
}

}  // namespace ebb::cli
