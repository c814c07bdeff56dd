// Declares the options that only `ebb-lab` has, and their rows in the option table.
#ifndef EBB_APPS_LAB_LAB_OPTIONS_H_
#define EBB_APPS_LAB_LAB_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "apps/common/options/options.h"
#include "ebb/lab/eval.h"

namespace ebb::cli {

struct ProfileInput {
  std::string prompts_file;    // --prompts
  int transfer_tokens = 1024;  // --transfer-tokens
  std::optional<int> why;      // --why
};

struct FidelityInput {
  std::string text_file;
  int tokens = 0;
  int windows = 0;
  int window_tokens = 2048;
  int prompt_tokens = 64;
  bool forgetting = false;
};

// EvalInput holds the options of `ebb-lab eval`.
struct EvalInput {
  std::string task = "pebble";  // --task
  int problems = 200;           // --problems; 0: all in the file
  std::string policies;         // --policies; empty: "full"
  std::string budgets;          // --budgets
  std::string grid_file;        // --grid
  std::string out;              // --out
  std::string shard = "0/1";    // --shard
  bool resume = false;
  bool any_version = false;
  int samples = 1;
  int workers = 0;                               // 0: AvailableProcessors().threads
  int batch = 0;                                 // 0: each problem steps alone
  std::string prompt = "plain";                  // --prompt-preset
  std::optional<AnswerRules> answer_rules = {};  // unset: as the preset has them
  PromptStyle prompt_style = PromptStyle::kChat;
  // Holds the temperature of sampling; 0, the default of an evaluation, means greedy decoding.
  float temperature = 0;
  int top_k = 40;
  float top_p = 0.95f;
  float min_p = 0.05f;
  int max_tokens = 0;  // 0: the task's own limit
};

// ImportanceInput has the options of `ebb-lab importance`; see OcclusionOptions.
struct ImportanceInput {
  int window = 32;          // --occlude
  int stride = 16;          // --stride
  int answer_tokens = 512;  // --answer-tokens
  std::string boundary;     // --boundary
};

// Appends the rows of the groups kProfile, kFidelity, kTask, kEval and kImportance.
void AppendLabOptionRows(std::vector<OptionRow>* table);

}  // namespace ebb::cli

#endif  // EBB_APPS_LAB_LAB_OPTIONS_H_
