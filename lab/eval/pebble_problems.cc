#include <string>

#include "ebb/lab/eval.h"
#include "ebb/lab/pebble.h"

namespace ebb {
namespace {

// kMaxPebbleTokens is enough for the longest thought and its answer.
constexpr int kMaxPebbleTokens = 1600;
// Judges only the part after the thought, because statements inside a thought are no answer.
Judgement JudgePebble(std::string_view text, std::string_view answer,
                      const std::string& reference) {
  const Judgement judgement = JudgeAnswer(answer, reference, {.kind = AnswerKind::kWord});
  const bool is_unfinished = judgement.verdict == Verdict::kEmpty && !text.empty();
  return is_unfinished ? Judgement{.verdict = Verdict::kNoAnswer} : judgement;
}

}  // namespace

std::vector<EvalQuestion> PebbleProblems(uint64_t seed, int count) {
  std::vector<EvalQuestion> problems;
  for (int i = 0; i < count; ++i) {
    const PebbleProblem pebble = MakePebbleProblem(seed, static_cast<uint64_t>(i));
    problems.push_back(
        {.id = std::to_string(i),
         .question = pebble.Question(),
         .max_tokens = kMaxPebbleTokens,
         .judge = [reference = pebble.answer](std::string_view text, std::string_view answer) {
           return JudgePebble(text, answer, reference);
         }});
  }
  return problems;
}

}  // namespace ebb
