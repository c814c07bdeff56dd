// Runs of `ebb eval` as a test writes them down.
#ifndef EBB_APPS_EVAL_FRONT_FIXTURE_H_
#define EBB_APPS_EVAL_FRONT_FIXTURE_H_

#include <string>
#include <utility>
#include <vector>

#include "apps/ebb/eval/runs.h"

namespace ebb::cli {

struct TestModel {
  uint64_t fingerprint = 1;
  double compression = 0;
  int window = 0;
  int shift = 1;
  std::string description = "pebble, llama, F16";
};
inline const TestModel kPlain;
inline const TestModel kCr4 = {.fingerprint = 4, .compression = 4, .window = 16};

struct TestSetting {
  std::string policy = "full";
  std::string budget = {};
  std::string tiers = {};
  std::string options = {};
};

// Answers by problem and sample; those that begin with '+' are right, an empty one is none.
using TestAnswers = std::vector<std::vector<std::string>>;

// The cost of an answer. A peak of 0: its request was refused.
struct TestCost {
  double kv_reads = 100;
  double peak_tokens = 10;
};

inline EvalRun MakeRun(const TestModel& model, int tokens, const TestSetting& setting,
                       const TestAnswers& answers, TestCost cost, int first_seed = 0) {
  EvalRun run = {.folder = setting.policy + setting.budget,
                 .manifest = {{"task", "pebble"},
                              {"problems", answers.size()},
                              {"seed", 7},
                              {"model", model.description},
                              {"model_fingerprint", model.fingerprint},
                              {"model_compression", model.compression},
                              {"model_window", model.window},
                              {"model_shift", model.shift},
                              {"temperature", 1.0},
                              {"tokens", tokens},
                              {"answer_tokens", tokens > 0 ? tokens : 1600},
                              {"shard", "0/1"},
                              {"settings", nlohmann::ordered_json::array()}}};
  for (size_t sample = 0; sample < answers[0].size(); ++sample) {
    const size_t seed = sample + static_cast<size_t>(first_seed);
    run.manifest["settings"].push_back({{"policy", setting.policy},
                                        {"budget", setting.budget},
                                        {"tiers", setting.tiers},
                                        {"options", setting.options},
                                        {"seed", seed}});
    for (size_t problem = 0; problem < answers.size(); ++problem) {
      const std::string& answer = answers[problem][sample];
      run.results.push_back({{"setting", sample},
                             {"problem", problem},
                             {"policy", setting.policy},
                             {"budget", setting.budget},
                             {"tiers", setting.tiers},
                             {"options", setting.options},
                             {"seed", seed},
                             {"correct", answer.starts_with('+')},
                             {"extracted", answer},
                             {"kv_reads", cost.kv_reads},
                             {"peak_tokens", cost.peak_tokens}});
      run.times.push_back({{"setting", sample}, {"seconds", 1.0}});
    }
  }
  return run;
}

}  // namespace ebb::cli

#endif  // EBB_APPS_EVAL_FRONT_FIXTURE_H_
