#include "apps/lab/lab_options.h"

#include "apps/common/options/option_values.h"

namespace ebb::cli {
namespace {

using G = OptionGroup;

std::vector<OptionRow> ProfileRows() {
  return {
      NameRow(G::kProfile, "--prompts", "FILE",
              "profile many prompts, one a line: text, or JSON objects with a \"prompt\" or a "
              "\"question\"",
              [](CliOptions& o) { return &o.Of<ProfileInput>().prompts_file; }),
      ValueRow(G::kProfile, "--transfer-tokens", "N",
               "most tokens that are moved between tiers to measure how long that takes; 0: none",
               [](CliOptions& o) { return &o.Of<ProfileInput>().transfer_tokens; }, {.min = 0}),
      ValueRow(G::kProfile, "--why", "POSITION",
               "print why the token at this position of the sequence, from 0, is in its tier: each "
               "decision that moved it, with its score, its rank and the rule",
               [](CliOptions& o) { return &o.Of<ProfileInput>().why; }, {.min = 0}),
  };
}

std::vector<OptionRow> FidelityRows() {
  return {
      NameRow(G::kFidelity, "--text", "FILE",
              "text to judge on; without it, the model's own greedy text",
              [](CliOptions& o) { return &o.Of<FidelityInput>().text_file; }),
      ValueRow(G::kFidelity, "--tokens", "N",
               "tokens of text to judge on; 0: all of the file, or one window of the model's own",
               [](CliOptions& o) { return &o.Of<FidelityInput>().tokens; }, {.min = 0}),
      ValueRow(G::kFidelity, "--windows", "N", "windows to judge on; 0: as many as there are",
               [](CliOptions& o) { return &o.Of<FidelityInput>().windows; }, {.min = 0}),
      ValueRow(G::kFidelity, "--window-tokens", "N", "tokens of a window, the prompt's included",
               [](CliOptions& o) { return &o.Of<FidelityInput>().window_tokens; }, {.min = 2}),
      ValueRow(G::kFidelity, "--prompt-tokens", "N",
               "tokens of a window that are read as its prompt; the others are decoded and judged",
               [](CliOptions& o) { return &o.Of<FidelityInput>().prompt_tokens; }, {.min = 1}),
      FlagRow(
          G::kFidelity, "--forgetting",
          "also measure the error that evicted rows cause in the output of each attention head",
          [](CliOptions& o) { return &o.Of<FidelityInput>().forgetting; }, true),
  };
}

std::vector<OptionRow> EvalRows() {
  return {
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
               "the prompt for questions of a file and the longest answer: plain, or those of a "
               "paper: hierarchy, epikv, dms, lazy_eviction",
               [](CliOptions& o) { return &o.Of<EvalInput>().prompt; }),
      ChoiceRow<std::optional<AnswerRules>>(
          G::kEval, "--answer-rules",
          "how the answer is found in a text: as the preset says; \"####\", else a phrase, else a "
          "box (cascade); the one of these that stands last; a box alone",
          [](CliOptions& o) { return &o.Of<EvalInput>().answer_rules; },
          {{"preset", std::nullopt},
           {"cascade", AnswerRules::kCascade},
           {"last", AnswerRules::kLastMark},
           {"boxed", AnswerRules::kBoxedOnly}}),
      ChoiceRow<PromptStyle>(
          G::kTask, "--prompt-style",
          "ask through the model's chat template, or give the question as raw text",
          [](CliOptions& o) { return &o.Of<EvalInput>().prompt_style; },
          {{"chat", PromptStyle::kChat}, {"raw", PromptStyle::kRaw}}),
      ValueRow(G::kTask, "--out", "FOLDER", "where the results are written",
               [](CliOptions& o) { return &o.Of<EvalInput>().out; }),
      FlagRow(
          G::kEval, "--resume", "continue the run in this folder",
          [](CliOptions& o) { return &o.Of<EvalInput>().resume; }, true),
      FlagRow(
          G::kEval, "--any-version",
          "with --resume, continue a run that another version of ebb began, whose answers may "
          "differ",
          [](CliOptions& o) { return &o.Of<EvalInput>().any_version; }, true),
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
}

std::vector<OptionRow> ImportanceRows() {
  return {
      ValueRow(G::kImportance, "--occlude", "N", "tokens that are replaced together",
               [](CliOptions& o) { return &o.Of<ImportanceInput>().window; }, {.min = 1}),
      ValueRow(G::kImportance, "--stride", "N", "tokens from one such window to the next",
               [](CliOptions& o) { return &o.Of<ImportanceInput>().stride; }, {.min = 1}),
      ValueRow(G::kImportance, "--answer-tokens", "N",
               "most tokens that are generated after each occluded thought",
               [](CliOptions& o) { return &o.Of<ImportanceInput>().answer_tokens; }, {.min = 1}),
      ValueRow(G::kImportance, "--boundary", "TEXT",
               "the thought ends after the last place where the model wrote this; not given: the "
               "thinking tag, else \"\\boxed{\", else 64 tokens before the end",
               [](CliOptions& o) { return &o.Of<ImportanceInput>().boundary; }),
  };
}

}  // namespace

void AppendLabOptionRows(std::vector<OptionRow>* table) {
  for (const auto& rows : {ProfileRows(), FidelityRows(), EvalRows(), ImportanceRows()}) {
    table->insert(table->end(), rows.begin(), rows.end());
  }
}

}  // namespace ebb::cli
