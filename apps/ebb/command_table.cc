#include "apps/common/docs/docs.h"
#include "apps/ebb/commands.h"
#include "apps/ebb/pull/pull_options.h"
#include "apps/ebb/serve/serve_options.h"

namespace ebb::cli {
namespace {

using G = OptionGroup;

std::vector<Command> Commands() {
  return {
      {"run", "answer one prompt",
       WithModel({G::kPrompt, G::kSystem, G::kSession, G::kGeneration, G::kSampling, G::kPolicy,
                  G::kLossless, G::kMemory, G::kDisplay, G::kQuiet, G::kJson, G::kLogprobs}),
       RunRun},
      {"chat", "talk in turns; /exit, /reset, /stats and /help are commands",
       WithModel({G::kSystem, G::kSession, G::kGeneration, G::kSampling, G::kPolicy, G::kLossless,
                  G::kMemory, G::kDisplay, G::kQuiet, G::kLogprobs}),
       RunChat},
      {"serve", "answer requests over HTTP, as OpenAI's and Anthropic's interfaces do",
       WithModel({G::kServe, G::kGeneration, G::kSampling, G::kPolicy, G::kLossless}), RunServe},
      {"pull",
       "fetch models by name, or the default one, SmolLM2-135M-Instruct; resumes what was "
       "interrupted",
       {G::kPull, G::kQuiet, G::kJson},
       RunPull},
      {"list", "list the downloaded models and their sizes", {G::kJson}, RunList},
      {"rm", "remove downloaded models", {G::kRemove, G::kQuiet, G::kJson}, RunRemove},
      {"fit", "estimate memory and show what fits",
       WithModel({G::kFit, G::kPolicy, G::kMemory, G::kQuiet, G::kJson}), ExitCodeOf<RunFit>},
      {"device", "devices that compute and hold rows (docs/user/gpu.md)", {}, nullptr},
      {"device list", "what --device takes here", {G::kQuiet, G::kJson}, RunDeviceList},
      {"device test",
       "run a model on a device and on the processor, and tell how they differ and how fast they "
       "are",
       WithModel({G::kPolicy, G::kQuiet, G::kJson}), RunDeviceTest},
      DocsCommand(
          [](const CliOptions& options) { return PrintDocs(EbbProgram(), options.docs_form); }),
  };
}

}  // namespace

const Program& EbbProgram() {
  static const Program program = [] {
    Program ebb = {
        .name = "ebb",
        .summary = "run language models whose key-value cache lives in a memory hierarchy",
        .reference = "docs/user/cli.md",
        .commands = Commands(),
        .options = SharedOptions(),
        .moved = {{"eval", "ebb-lab eval"},
                  {"report", "python3 -m ebb.report merge"},
                  {"profile", "ebb-lab profile"},
                  {"fidelity", "ebb-lab fidelity"},
                  {"importance", "ebb-lab importance"},
                  {"bench", "ebb-bench"}},
    };
    AppendPullOptionRows(&ebb.options);
    AppendServeOptionRows(&ebb.options);
    return ebb;
  }();
  return program;
}

}  // namespace ebb::cli
