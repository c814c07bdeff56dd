// The samples of each setting over several runs of the same problems: the chains that points L-W-CR
// are made of (Dynamic Memory Sparsification, 5.1).
#ifndef EBB_APPS_EVAL_FRONT_CHAINS_H_
#define EBB_APPS_EVAL_FRONT_CHAINS_H_

#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "apps/ebb/eval/runs.h"
#include "ebb/status.h"

namespace ebb::cli {

// One answer.
struct Chain {
  bool correct = false;
  std::string extracted;
  bool begun = false;  // a request that was refused cost nothing
  double kv_reads = 0;
  double peak_tokens = 0;
};

// A setting: a model, a limit of tokens, a policy at a budget.
struct ChainSet {
  std::string method;       // what its front is of
  std::string compression;  // CR, or the budget in its place
  int64_t tokens = 0;       // L; 0: not recorded
  std::string policy, budget, tiers, options;
  std::string model;
  double model_compression = 0;  // that the model's marks were trained for; 0: not said
  std::vector<std::vector<Chain>> of_problem;  // [problems][samples], in the order of seeds
};

struct Chains {
  std::vector<std::string> methods;  // the full cache first, models that mark rows last
  std::vector<ChainSet> sets;
};

// Shards are put together; samples of a question from several runs are pooled by seed. A method is
// a policy with its options, tiers and model, over all budgets and evicted shares; with marks of
// the model it is over all models that are trained for the same window and shift. Names hold the
// options, window and shift only where those tell methods apart, and a model where it is not that
// of "full": the full cache of the first model that is not trained to mark rows, where there is
// one, else of the first.
//
// Errors: InvalidArgument (runs that are not of the same problems or not sampled alike, answers
// that are missing or differ).
[[nodiscard]] Result<Chains> CollectChains(std::vector<EvalRun> runs);

}  // namespace ebb::cli

#endif  // EBB_APPS_EVAL_FRONT_CHAINS_H_
