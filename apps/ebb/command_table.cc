#include <fmt/format.h>

#include <algorithm>

#include "apps/ebb/commands.h"

namespace ebb::cli {
namespace {

using G = OptionGroup;

std::vector<G> WithModel(std::vector<G> groups) {
  groups.insert(groups.end(), ModelGroups().begin(), ModelGroups().end());
  return groups;
}

}  // namespace

std::span<const Command> CommandTable() {
  static const std::vector<Command> table = {
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
       WithModel({G::kFit, G::kPolicy, G::kMemory, G::kQuiet, G::kJson}), RunFit},
      {"profile", "report attention, tier occupancy and timing",
       WithModel({G::kPrompt, G::kSystem, G::kGeneration, G::kSampling, G::kProfile, G::kPolicy,
                  G::kMemory, G::kQuiet, G::kJson}),
       RunProfile},
      {"fidelity", "measure how far a policy's distributions are from the full cache's",
       WithModel({G::kFidelity, G::kPolicy, G::kMemory, G::kQuiet, G::kJson}), RunFidelity},
      {"eval", "let a model answer problems under many policies and budgets, and count",
       WithModel({G::kTask, G::kEval, G::kPolicy, G::kLossless, G::kQuiet, G::kJson}), RunEval},
      {"report",
       "put the results of several `ebb eval` together",
       {G::kReport, G::kQuiet, G::kJson},
       RunReport},
      {"importance", "label which tokens of a thought matter, and correlate signals with that",
       WithModel({G::kTask, G::kImportance, G::kQuiet, G::kJson}), RunImportance},
      {"bench", "measure speed", {}, nullptr},
      {"bench decode", "tokens per second at a depth",
       WithModel({G::kBenchDepth, G::kBenchDecode, G::kBenchGenerate, G::kBench, G::kPolicy,
                  G::kQuiet, G::kJson}),
       RunBenchDecode},
      {"bench prefill", "tokens per second of reading a prompt",
       WithModel({G::kBenchPrompt, G::kBenchDepth, G::kBench, G::kPolicy, G::kQuiet, G::kJson}),
       RunBenchPrefill},
      {"bench lossless",
       "a lossless generation against the full cache in memory, and against reading T1 for every "
       "token",
       WithModel({G::kBenchDepth, G::kBenchLossless, G::kSampling, G::kBench, G::kPolicy,
                  G::kLossless, G::kQuiet, G::kJson}),
       RunBenchLossless},
      {"bench attention",
       "read rate of attention, and its share of what the memory can do",
       {G::kBenchAttention, G::kBench, G::kModelFile, G::kThreads, G::kSeed, G::kKvType, G::kQuiet,
        G::kJson},
       RunBenchAttention},
      {"bench memory",
       "read bandwidth of this machine's memory",
       {G::kBenchMemory, G::kBench, G::kThreads, G::kJson},
       RunBenchMemory,
       {G::kModelFile, G::kSeed, G::kKvType, G::kQuiet}},
      {"bench products",
       "speed of products of weights and activations, for each type of weights",
       {G::kBenchProducts, G::kBench, G::kThreads, G::kQuiet, G::kJson},
       RunBenchProducts,
       {}},
      {"device", "devices that compute and hold rows (docs/user/gpu.md)", {}, nullptr},
      {"device list", "what --device takes here", {G::kQuiet, G::kJson}, RunDeviceList},
      {"device test",
       "run a model on a device and on the processor, and tell how they differ and how fast they "
       "are",
       WithModel({G::kPolicy, G::kQuiet, G::kJson}), RunDeviceTest},
      {"docs",
       "print the reference of commands and options",
       {G::kDocs},
       RunDocs,
       {},
       Command::Visibility::kHidden},
  };
  return table;
}

std::vector<const Command*> ChildrenOf(std::string_view parent) {
  std::vector<const Command*> children;
  for (const Command& command : CommandTable()) {
    const size_t space = command.name.rfind(' ');
    const std::string_view above =
        space == std::string_view::npos ? "" : command.name.substr(0, space);
    if (above == parent && command.visibility == Command::Visibility::kShown) {
      children.push_back(&command);
    }
  }
  return children;
}

std::string_view LastWord(const Command& command) {
  return command.name.substr(command.name.rfind(' ') + 1);
}

const Command* FindCommand(std::string_view name) {
  const auto table = CommandTable();
  const auto found = std::ranges::find(table, name, &Command::name);
  return found == table.end() ? nullptr : &*found;
}

std::string WithoutEffectText(const Command& command) {
  std::string names;
  for (const OptionRow& row : OptionTable()) {
    const auto& groups = command.without_effect;
    if (std::ranges::find(groups, row.group) == groups.end()) continue;
    if (!names.empty()) names += ", ";
    names += row.names.substr(0, row.names.find(','));
  }
  return names.empty() ? "" : fmt::format("Taken too, without any effect here: {}.", names);
}

}  // namespace ebb::cli
