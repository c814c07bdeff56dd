#include "apps/common/docs/docs.h"
#include "apps/lab/commands.h"
#include "apps/lab/lab_options.h"

namespace ebb::cli {
namespace {

using G = OptionGroup;

std::vector<Command> Commands() {
  return {
      {"eval",
       "let a model answer problems under many policies and budgets, and count",
       WithModel({G::kTask, G::kEval, G::kPolicy, G::kLossless, G::kQuiet, G::kJson}),
       ExitCodeOf<RunEval>,
       {},
       Command::Visibility::kShown,
       /*has_settings=*/true},
      {"profile", "report attention, tier occupancy and timing",
       WithModel({G::kPrompt, G::kSystem, G::kGeneration, G::kSampling, G::kProfile, G::kPolicy,
                  G::kMemory, G::kQuiet, G::kJson}),
       ExitCodeOf<RunProfile>},
      {"fidelity", "measure how far a policy's distributions are from the full cache's",
       WithModel({G::kFidelity, G::kPolicy, G::kMemory, G::kQuiet, G::kJson}),
       ExitCodeOf<RunFidelity>},
      {"importance",
       "label the tokens of a thought that matter, and correlate signals with the labels",
       WithModel({G::kTask, G::kImportance, G::kQuiet, G::kJson}), ExitCodeOf<RunImportance>},
      DocsCommand(
          [](const CliOptions& options) { return PrintDocs(LabProgram(), options.docs_form); }),
  };
}

}  // namespace

const Program& LabProgram() {
  static const Program program = [] {
    Program lab = {
        .name = "ebb-lab",
        .summary = "study what cache policies and tiers do to a model's answers and logits",
        .reference = "docs/user/cli-lab.md",
        .commands = Commands(),
        .options = SharedOptions(),
    };
    AppendLabOptionRows(&lab.options);
    return lab;
  }();
  return program;
}

}  // namespace ebb::cli
