// Lists the prompts of the papers. A prompt is part of an experiment, so that the words are exactly
// the words of the sources named here.
#include <string>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ebb/lab/eval_task.h"

namespace ebb {
namespace {

// kStepByStep follows "Not All Thoughts Need HBM", App. F, which says only: 'questions are
// presented in a minimal "solve step by step" format'.
constexpr std::string_view kStepByStep = "Solve step by step.\n\n{problem}";
constexpr std::string_view kStepByStepOption =
    "Solve step by step. End with \"The answer is LETTER.\"\n\n{problem}";

// kBoxed follows the official code of "LazyEviction" (evaluation.py), which writes the instruction
// and the question in the user's turn, for every task.
constexpr std::string_view kBoxed =
    "Please reason step by step, and put your final answer within \\boxed{}.\n{problem}";

// kOpenR1Math is the prompt of "Inference-Time Hyper-Scaling", App. F.2, which takes it from
// Open-R1; the two spaces are in the source.
constexpr std::string_view kOpenR1Math =
    "Solve the following math problem efficiently and clearly.  The last line of your response "
    "should be of the following format: 'Therefore, the final answer is: $\\boxed{ANSWER}$. I hope "
    "it is correct' (without quotes) where ANSWER is just the final number or expression that "
    "solves the problem. Think step by step before answering.\n\n{problem}";
constexpr std::string_view kOpenR1Option =
    "Answer the following multiple choice question. The last line of your response should be of "
    "the following format: 'Answer: $LETTER' (without quotes) where LETTER is one of ABCD. Think "
    "step by step before answering.\n\n{problem}";

// kMetaGsm8k is the prompt of "Inference-Time Hyper-Scaling", App. F.2, which takes it from Meta;
// its system turn is the one that the chat template of Llama 3 writes.
constexpr std::string_view kMetaGsm8k =
    "Given the following problem, reason and give a final answer to the problem.\nProblem: "
    "{problem}\nYour response should end with \"The final answer is [answer]\" where [answer] is "
    "the response to the problem.";

// kPresets takes its token limits from "Not All Thoughts Need HBM", 4.1 and App. F; "EpiKV", 3.5
// (lengths of traces); "Inference-Time Hyper-Scaling", Tables 7 to 9; "LazyEviction", App. C. The
// descriptions call these papers 000, 002, 003 and 004.
constexpr PromptPreset kPresets[] = {
    {
        .name = "plain",
        .description = "the problem alone; 4,096 tokens",
        .prompts = {{{"{problem}", 4096},
                     {"{problem}", 4096},
                     {"{problem}", 4096},
                     {"{problem}", 4096},
                     {"{problem}", 4096},
                     {"{problem}", 4096}}},
    },
    {
        .name = "hierarchy",
        .description =
            "000: \"solve step by step\", the cascade; 2,048 tokens, 4,096 for MATH level "
            "5. The wording is ours, and AIME and GPQA are (4,096)",
        .prompts = {{{kStepByStep, 2048},
                     {kStepByStep, 2048},
                     {kStepByStep, 4096},
                     {kStepByStep, 4096},
                     {kStepByStepOption, 2048},
                     {kStepByStepOption, 4096}}},
    },
    {
        .name = "epikv",
        .description =
            "002: the boxed answer alone. The prompt, that of 004, is ours; caps are the "
            "longest traces told: 16,384 tokens, 32,768 for AIME; 4,096 for GSM8K and "
            "ARC are ours",
        .rules = AnswerRules::kBoxedOnly,
        .prompts = {{{kBoxed, 4096},
                     {kBoxed, 16384},
                     {kBoxed, 16384},
                     {kBoxed, 32768},
                     {kBoxed, 4096},
                     {kBoxed, 16384}}},
    },
    {
        .name = "dms",
        .description = "003: Open-R1's prompts, Meta's for GSM8K; 32,768 tokens (the longest L). "
                       "ARC, by likelihood in the paper, and the 4,096 of GSM8K and ARC are ours",
        .prompts = {{{kMetaGsm8k, 4096},
                     {kOpenR1Math, 32768},
                     {kOpenR1Math, 32768},
                     {kOpenR1Math, 32768},
                     {kOpenR1Option, 4096},
                     {kOpenR1Option, 32768}}},
    },
    {
        .name = "lazy_eviction",
        .description =
            "004: reason step by step, answer in \\boxed{}; 4,096 tokens for GSM8K, 8,192 "
            "for MATH and GPQA, 16,384 for AIME. ARC (4,096) is ours",
        .prompts = {{{kBoxed, 4096},
                     {kBoxed, 8192},
                     {kBoxed, 8192},
                     {kBoxed, 16384},
                     {kBoxed, 4096},
                     {kBoxed, 8192}}},
    },
};

}  // namespace

std::span<const PromptPreset> PromptPresets() { return kPresets; }

Result<const PromptPreset*> FindPromptPreset(std::string_view name) {
  std::vector<std::string_view> names;
  for (const PromptPreset& preset : kPresets) {
    if (preset.name == name) return &preset;
    names.push_back(preset.name);
  }
  return InvalidArgument(
      fmt::format("there is no prompt preset \"{}\"; there are {}", name, fmt::join(names, ", ")));
}

std::string FormatPrompt(const TaskPrompt& prompt, const EvalProblem& problem) {
  constexpr std::string_view kPlace = "{problem}";
  const size_t place = prompt.text.find(kPlace);
  if (place == std::string_view::npos) return std::string(prompt.text);
  return fmt::format("{}{}{}", prompt.text.substr(0, place), problem.Text(),
                     prompt.text.substr(place + kPlace.size()));
}

}  // namespace ebb
