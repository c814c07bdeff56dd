// Makes the prompt that asks a model a problem.
#ifndef EBB_LAB_EVAL_QUESTION_PROMPT_H_
#define EBB_LAB_EVAL_QUESTION_PROMPT_H_

#include "ebb/lab/eval.h"
#include "ebb/model.h"
#include "ebb/status.h"

namespace ebb {

// Returns the prompt, through the model's chat template or as raw text.
[[nodiscard]] inline Result<ChatPrompt> PromptFor(const Model& model, const EvalQuestion& problem,
                                                  PromptStyle style) {
  if (style == PromptStyle::kRaw) return ChatPrompt{.text = problem.question};
  const ChatMessage message = {.role = "user", .content = problem.question};
  return model.FormatChat({&message, 1}, Model::Thinking::kModelDefault);
}

}  // namespace ebb

#endif  // EBB_LAB_EVAL_QUESTION_PROMPT_H_
