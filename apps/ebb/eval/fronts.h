// Fronts of methods over several evaluations of the same problems, and how far they lie apart
// (Dynamic Memory Sparsification, 5.1 and App. E).
#ifndef EBB_APPS_EVAL_FRONTS_H_
#define EBB_APPS_EVAL_FRONTS_H_

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/ebb/eval/runs.h"
#include "ebb/lab/statistics.h"
#include "ebb/status.h"

namespace ebb::cli {

// {"run", "runs", "baseline", "bootstrap", "methods", "left_out", "points", "margins"}:
//
// run: the fields that all runs have in common, as in grid.json. runs: "folder", "model",
// "model_compression", "tokens". methods: names as CollectChains() gives them, the first being the
// baseline.
//
// points: for each setting and W = 1, 2, 4 ... up to its samples: "name" ("L-W-CR"), "method",
// "tokens" (L), "width" (W), "compression", "policy", "budget", "tiers", "options", "model",
// "model_compression", "samples"; "majority" and "pass_all", each the mean over problems and the
// disjoint subsets of W samples in the order of seeds, with "..._low" and "..._high"; "kv_reads"
// and "peak_tokens", W times the mean of a chain that began, since W chains run at the same time;
// "on_front", {"majority": {"kv_reads", "peak_tokens"}, "pass_all": the same}, whether no point of
// its method beats it. left_out: settings none of whose requests began.
//
// margins: for each pair "method", "over" and for each score and cost, as in on_front, {"margin",
// "low", "high", "none", "from", "to"}: the mean difference over the costs that both fronts span
// (null where they span none), its interval over the resamples that have one, the share of those
// that have none, and the costs it is over. Pairs over the baseline come first.
//
// Errors: those of CollectChains(); InvalidArgument where nothing is left.
[[nodiscard]] Result<nlohmann::ordered_json> CompareFronts(std::vector<EvalRun> runs,
                                                           const BootstrapOptions& options = {});

// Points and margins as Markdown.
[[nodiscard]] std::string FrontTable(const nlohmann::ordered_json& fronts);

}  // namespace ebb::cli

#endif  // EBB_APPS_EVAL_FRONTS_H_
