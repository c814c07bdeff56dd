// --memory: from a size to a setting of the tiers.
#ifndef EBB_CLI_FIT_MEMORY_H_
#define EBB_CLI_FIT_MEMORY_H_

#include <cstdint>

#include "ebb/fit.h"
#include "ebb/model.h"
#include "ebb/status.h"
#include "src/cli/options.h"

namespace ebb::cli {

// What the options ask of a model that was just loaded, whose resident size is measured here.
struct FitQuestion {
  FitModel model;
  FitRequest request;
};
[[nodiscard]] FitQuestion FitQuestionFor(const Model& model, const CliOptions& options,
                                         int prompt_tokens);

enum class PromptsCome { kFirst, kAtAnyTime };

// Without --memory: nothing. With it and options of the tiers: checks that they fit. Else takes the
// gentlest setting that fits, and says on stderr which. ResourceExhausted when nothing fits;
// InvalidArgument beside --budget.
[[nodiscard]] Status FitIntoMemory(const Model& model, int prompt_tokens, CliOptions* options,
                                   PromptsCome prompts = PromptsCome::kFirst);

// The same for a prompt and what may be generated after it: the context that must fit is no longer.
[[nodiscard]] Status FitGenerationIntoMemory(const Model& model, int prompt_tokens,
                                             CliOptions* options);

}  // namespace ebb::cli

#endif  // EBB_CLI_FIT_MEMORY_H_
