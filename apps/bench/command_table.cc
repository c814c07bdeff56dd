#include "apps/bench/bench_options.h"
#include "apps/bench/commands.h"
#include "apps/common/docs/docs.h"

namespace ebb::cli {
namespace {

using G = OptionGroup;

std::vector<Command> Commands() {
  return {
      {"decode", "tokens per second at a depth",
       WithModel({G::kBenchDepth, G::kBenchDecode, G::kBenchGenerate, G::kBench, G::kPolicy,
                  G::kQuiet, G::kJson}),
       ExitCodeOf<BenchDecode>},
      {"prefill", "tokens per second of reading a prompt",
       WithModel({G::kBenchPrompt, G::kBenchDepth, G::kBench, G::kPolicy, G::kQuiet, G::kJson}),
       ExitCodeOf<BenchPrefill>},
      {"columns", "time of a step of 1 to 16 tokens at a depth, as verifying guesses takes",
       WithModel({G::kBenchColumns, G::kBenchDepth, G::kBench, G::kPolicy, G::kQuiet, G::kJson}),
       ExitCodeOf<BenchColumns>},
      {"lossless",
       "a lossless generation against the full cache in memory, and against reading T1 for every "
       "token",
       WithModel({G::kBenchDepth, G::kBenchLossless, G::kSampling, G::kBench, G::kPolicy,
                  G::kLossless, G::kQuiet, G::kJson}),
       ExitCodeOf<BenchLossless>},
      {"attention",
       "read rate of attention, and its share of the memory's bandwidth",
       {G::kBenchAttention, G::kBench, G::kModelFile, G::kThreads, G::kSeed, G::kKvType, G::kQuiet,
        G::kJson},
       ExitCodeOf<BenchAttention>},
      {"memory",
       "read bandwidth of this machine's memory",
       {G::kBenchMemory, G::kBench, G::kThreads, G::kJson},
       ExitCodeOf<BenchMemory>,
       {G::kModelFile, G::kSeed, G::kKvType, G::kQuiet}},
      {"products",
       "speed of products of weights and activations, for each type of weights",
       {G::kBenchProducts, G::kBench, G::kThreads, G::kQuiet, G::kJson},
       ExitCodeOf<BenchProducts>},
      DocsCommand(
          [](const CliOptions& options) { return PrintDocs(BenchProgram(), options.docs_form); }),
  };
}

}  // namespace

const Program& BenchProgram() {
  static const Program program = [] {
    Program bench = {
        .name = "ebb-bench",
        .summary = "measure the speed of a model under cache policies and tiers, and the machine's",
        .reference = "docs/user/cli-bench.md",
        .commands = Commands(),
        .options = SharedOptions(),
    };
    AppendBenchOptionRows(&bench.options);
    return bench;
  }();
  return program;
}

}  // namespace ebb::cli
