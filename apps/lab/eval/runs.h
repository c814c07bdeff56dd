// Runs of `ebb-lab eval` as their folders hold them, and shards of one put together.
#ifndef EBB_APPS_EVAL_RUNS_H_
#define EBB_APPS_EVAL_RUNS_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "ebb/status.h"

namespace ebb::cli {

struct EvalRun {
  std::string folder;
  nlohmann::ordered_json manifest;              // grid.json
  std::vector<nlohmann::ordered_json> results;  // checked, as many as times
  std::vector<nlohmann::ordered_json> times;
};

// grid.json. What runs of older versions could not choose is as it was for them. Errors: NotFound,
// Corrupt.
[[nodiscard]] Result<nlohmann::ordered_json> ReadManifest(const std::string& path);

// The first key in which two manifests differ, but for those that may; empty: none. What follows
// from the model's fingerprint may be missing in one of them.
[[nodiscard]] std::string DifferingKey(const nlohmann::ordered_json& a,
                                       const nlohmann::ordered_json& b,
                                       std::span<const std::string_view> may_differ = {});

// In what shards of a run, and runs of other settings of it, may differ.
[[nodiscard]] std::span<const std::string_view> KeysOfParts();

[[nodiscard]] Result<EvalRun> ReadEvalRun(const std::string& folder);

// In the order of settings and problems; its folder is that of the first. REQUIRES: at least one.
// Errors: InvalidArgument (another run, two answers to one question that differ).
[[nodiscard]] Result<EvalRun> MergeRuns(std::vector<EvalRun> runs);

// How many answers were asked for, over all shards.
[[nodiscard]] size_t NumAsked(const EvalRun& run);

}  // namespace ebb::cli

#endif  // EBB_APPS_EVAL_RUNS_H_
