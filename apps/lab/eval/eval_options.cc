#include "apps/lab/eval/eval_options.h"

#include "apps/common/options/option_values.h"
#include "apps/common/options/options.h"

namespace ebb::cli {

void AppendEvalOptionRows(std::vector<OptionRow>* table) {
  using G = OptionGroup;
  const std::vector<OptionRow> rows = {
      ValueRow(G::kTask, "--task", "pebble|FILE.jsonl[:FORMAT]",
               "the questions: pebble's own problems, or a file of questions and answers",
               [](CliOptions& o) { return &o.Of<EvalInput>().task; }),
      ValueRow(G::kTask, "--problems", "N", "how many of them, from the first; 0: all of the file",
               [](CliOptions& o) { return &o.Of<EvalInput>().problems; }, {.min = 0}),
      ValueRow(G::kEval, "--policies", "NAME,...",
               "policies to compare, each with its parameters: full,h2o:heavy=64,streaming; with "
               "--t0, --t1, --t2 or --evict the tiers place the rows, and these name the scorers",
               [](CliOptions& o) { return &o.Of<EvalInput>().policies; }),
      ValueRow(G::kEval, "--budgets", "BUDGET,...", "budgets for each of them but full: 25%,1024",
               [](CliOptions& o) { return &o.Of<EvalInput>().budgets; }),
      NameRow(G::kEval, "--grid", "FILE",
              "a JSON file with lists of \"policies\", \"budgets\", \"seeds\" and \"settings\", "
              "the last being objects of options: {\"t0\": \"50%\", \"evict\": \"5%\"}",
              [](CliOptions& o) { return &o.Of<EvalInput>().grid_file; }),
      ValueRow(G::kEval, "--samples", "N",
               "answers to each problem, with seeds from --seed on; more than one needs --temp",
               [](CliOptions& o) { return &o.Of<EvalInput>().samples; }, {.min = 1, .max = 1024}),
      ValueRow(G::kEval, "--temp", "X", "temperature; 0 always takes the likeliest token",
               [](CliOptions& o) { return &o.Of<EvalInput>().temperature; },
               {.min = 0, .max = 100}),
      ValueRow(G::kEval, "--top-k", "N", "sample among the N likeliest; 0: all",
               [](CliOptions& o) { return &o.Of<EvalInput>().top_k; }, {.min = 0}),
      ValueRow(G::kEval, "--top-p", "X",
               "sample among the likeliest that together have probability X",
               [](CliOptions& o) { return &o.Of<EvalInput>().top_p; }, {.min = 0, .max = 1}),
      ValueRow(G::kEval, "--min-p", "X",
               "sample among those at least X times as likely as the likeliest; papers sample with "
               "--top-k 0 --top-p 1 --min-p 0",
               [](CliOptions& o) { return &o.Of<EvalInput>().min_p; }, {.min = 0, .max = 1}),
      ValueRow(G::kTask, "-n,--tokens", "N", "most tokens of an answer; 0: the task's own limit",
               [](CliOptions& o) { return &o.Of<EvalInput>().max_tokens; }, {.min = 0}),
      ValueRow(G::kTask, "--prompt-preset", "NAME",
               "how questions of a file are put, and how long answers may be: plain, or as a paper "
               "did: hierarchy, epikv, dms, lazy_eviction",
               [](CliOptions& o) { return &o.Of<EvalInput>().prompt; }),
      ChoiceRow<PromptStyle>(
          G::kTask, "--prompt-style",
          "ask through the model's chat template, or give the question as raw text",
          [](CliOptions& o) { return &o.Of<EvalInput>().prompt_style; },
          {{"chat", PromptStyle::kChat}, {"raw", PromptStyle::kRaw}}),
      ValueRow(G::kTask, "--out", "FOLDER", "where the results are written",
               [](CliOptions& o) { return &o.Of<EvalInput>().out; }),
      FlagRow(
          G::kEval, "--resume", "go on with the run that this folder holds",
          [](CliOptions& o) { return &o.Of<EvalInput>().resume; }, true),
      ValueRow(G::kEval, "--shard", "I/N",
               "run the I-th of N parts of the problems, from 0; `python3 -m ebb.report merge` "
               "puts them together",
               [](CliOptions& o) { return &o.Of<EvalInput>().shard; }),
      ValueRow(G::kTask, "--workers", "N",
               "problems at a time, a thread each; 0: one per core of the affinity mask, at most "
               "the cgroup's quota",
               [](CliOptions& o) { return &o.Of<EvalInput>().workers; }, {.min = 0, .max = 512}),
      ValueRow(G::kEval, "--batch", "N",
               "step N problems together, a multiple of 4, on --workers threads: several times as "
               "fast for a model that is read from memory; 0: each by itself",
               [](CliOptions& o) { return &o.Of<EvalInput>().batch; }, {.min = 0, .max = 256}),
  };
  table->insert(table->end(), rows.begin(), rows.end());
}

}  // namespace ebb::cli
