#include "apps/common/docs/docs.h"
#include "apps/ebb/commands.h"
#include "apps/ebb/device/commands.h"
#include "apps/ebb/fit/commands.h"
#include "apps/ebb/pull/commands.h"
#include "apps/ebb/pull/pull_options.h"
#include "apps/ebb/run/commands.h"
#include "apps/ebb/serve/commands.h"
#include "apps/ebb/serve/serve_options.h"

namespace ebb::cli {
namespace {

using G = OptionGroup;

std::vector<Command> Commands() {
  return {
      {.name = "run",
       .summary = "answer one prompt",
       .groups = WithModel({G::kPrompt, G::kSystem, G::kSession, G::kGeneration, G::kSpeculation,
                            G::kSampling, G::kPolicy, G::kLossless, G::kMemory, G::kDisplay,
                            G::kQuiet, G::kJson, G::kLogprobs}),
       .run = RunRun,
       .usual = {"--prompt", "--file", "--model", "--hf-repo", "--tokens", "--temp", "--context",
                 "--kv-type", "--memory", "--t0", "--t1", "--policy", "--budget", "--session",
                 "--live"},
       .examples =
           {"ebb run -p 'Why does the tide ebb and flow?'",
            "ebb run -hf Qwen/Qwen3-4B-GGUF --kv-type q4 -p 'Prove that there are infinitely many "
            "primes.'",
            "ebb run -m model.gguf -f prompt.txt --memory 6GiB"}},
      {.name = "chat",
       .summary = "talk in turns; /help shows the commands",
       .groups =
           WithModel({G::kSystem, G::kSession, G::kGeneration, G::kSpeculation, G::kSampling,
                      G::kPolicy, G::kLossless, G::kMemory, G::kDisplay, G::kQuiet, G::kLogprobs}),
       .run = RunChat,
       .usual = {"--model", "--hf-repo", "--system", "--session", "--temp", "--thoughts",
                 "--context", "--kv-type", "--memory", "--t0", "--t1", "--live"},
       .examples = {"ebb chat -hf Qwen/Qwen3-4B-GGUF --kv-type q4",
                    "ebb chat -m model.gguf --session talk.ebb"}},
      {.name = "serve",
       .summary = "answer requests over HTTP, as OpenAI's and Anthropic's interfaces do",
       .groups = WithModel(
           {G::kServe, G::kGeneration, G::kSpeculation, G::kSampling, G::kPolicy, G::kLossless}),
       .run = RunServe,
       .usual = {"--model", "--hf-repo", "--host", "--port", "--api-keys", "--new-key",
                 "--sessions", "--max-running", "--context", "--kv-type", "--kv-cap", "--t0",
                 "--t1", "--config"},
       .examples = {"ebb serve -hf Qwen/Qwen3-4B-GGUF --kv-type q4      # the page is "
                    "http://127.0.0.1:8080/",
                    "ebb serve --host 0.0.0.0      # for phones: open the address that it prints",
                    "ebb serve -m qwen2.5-coder-0.5b --any-model  # editors: base URL "
                    "http://127.0.0.1:8080/v1, any key",
                    "ebb serve -m model.gguf --t0 2GiB --t1 file --sessions file:sessions"}},
      {"pull",
       "fetch models by name, or the default one, SmolLM2-135M-Instruct; resumes interrupted "
       "downloads",
       {G::kPull, G::kQuiet, G::kJson},
       RunPull},
      {"list", "list the downloaded models and their sizes", {G::kJson}, RunList},
      {"rm", "remove downloaded models", {G::kRemove, G::kQuiet, G::kJson}, RunRemove},
      {.name = "fit",
       .summary = "show which models and which settings fit into memory, before a download",
       .groups = WithModel({G::kFit, G::kSpeculation, G::kPolicy, G::kMemory, G::kQuiet, G::kJson}),
       .run = ExitCodeOf<RunFit>,
       .usual = {"--model", "--hf-repo", "--list", "--memory", "--context", "--requests",
                 "--kv-type", "--device", "--measure"},
       .examples =
           {"ebb fit --list --memory 8GiB                   # which models fit",
            "ebb fit hf:Qwen/Qwen3-8B-GGUF --memory 8GiB    # which settings of a model fit"}},
      {"device", "graphics cards and other devices that compute (docs/user/gpu.md)", {}, nullptr},
      {"device list",
       "list the values that --device takes on this machine",
       {G::kQuiet, G::kJson},
       RunDeviceList},
      {"device test",
       "run a model on a device and on the processor, and compare results and speeds",
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
