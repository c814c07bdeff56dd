#include "src/cli/commands.h"

namespace ebb::cli {

std::span<const Command> CommandTable() {
  using G = OptionGroup;
  static const std::vector<Command> table = {
      {"run",
       "answer one prompt",
       {G::kPrompt, G::kSystem, G::kModel, G::kGeneration, G::kPolicy, G::kMachine, G::kDisplay,
        G::kQuiet, G::kJson},
       RunRun},
      {"chat",
       "talk in turns; /exit, /reset and /stats are commands",
       {G::kSystem, G::kModel, G::kGeneration, G::kPolicy, G::kMachine, G::kDisplay, G::kQuiet},
       RunChat},
      {"pull", "fetch the default model, SmolLM2-135M-Instruct", {G::kQuiet}, RunPull},
      {"fidelity",
       "measure how far a policy's distributions are from the full cache's",
       {G::kFidelity, G::kModel, G::kPolicy, G::kMachine, G::kQuiet, G::kJson},
       RunFidelity},
      {"bench", "measure speed", {}, nullptr},
      {"bench decode",
       "tokens per second at a depth",
       {G::kBenchDepth, G::kBenchDecode, G::kBenchGenerate, G::kBench, G::kModel, G::kPolicy,
        G::kMachine, G::kQuiet, G::kJson},
       RunBenchDecode},
      {"bench prefill",
       "tokens per second of reading a prompt",
       {G::kBenchPrompt, G::kBenchDepth, G::kBench, G::kModel, G::kPolicy, G::kMachine, G::kQuiet,
        G::kJson},
       RunBenchPrefill},
      {"bench attention",
       "read rate of attention, and its share of what the memory can do",
       {G::kBenchAttention, G::kBench, G::kModel, G::kMachine, G::kQuiet, G::kJson},
       RunBenchAttention},
      {"bench memory",
       "read bandwidth of this machine's memory",
       {G::kBenchMemory, G::kBench, G::kMachine, G::kQuiet, G::kJson},
       RunBenchMemory},
      {"bench compare",
       "the same work by llama.cpp's own tools, in turns",
       {G::kBenchCompare, G::kBenchDecode, G::kBenchPrompt, G::kBench, G::kModel, G::kMachine,
        G::kQuiet, G::kJson},
       RunBenchCompare},
      {"docs", "print docs/cli.md", {}, RunDocs, Command::Visibility::kHidden},
  };
  return table;
}

}  // namespace ebb::cli
