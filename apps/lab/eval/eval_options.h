// Options of `ebb-lab eval`, and those about a task, with their rows of the option table.
#ifndef EBB_APPS_OPTIONS_EVAL_OPTIONS_H_
#define EBB_APPS_OPTIONS_EVAL_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

#include "ebb/lab/eval.h"

namespace ebb::cli {

struct OptionRow;

struct EvalInput {
  std::string task = "pebble";  // --task
  int problems = 200;           // --problems; 0: all that a file has
  std::string policies;         // --policies; empty: full
  std::string budgets;          // --budgets
  std::string grid_file;        // --grid
  std::string out;              // --out
  std::string shard = "0/1";    // --shard
  bool resume = false;
  int samples = 1;
  int workers = 0;               // 0: AvailableProcessors().threads
  int batch = 0;                 // 0: each problem by itself
  std::string prompt = "plain";  // --prompt-preset
  PromptStyle prompt_style = PromptStyle::kChat;
  // Greedy unless asked otherwise.
  float temperature = 0;
  int top_k = 40;
  float top_p = 0.95f;
  float min_p = 0.05f;
  int max_tokens = 0;  // 0: the task's own
};

// Appends the rows of the groups kTask and kEval.
void AppendEvalOptionRows(std::vector<OptionRow>* table);

}  // namespace ebb::cli

#endif  // EBB_APPS_OPTIONS_EVAL_OPTIONS_H_
