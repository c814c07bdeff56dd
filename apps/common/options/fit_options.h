// Declares the options of `ebb fit`, the option --memory of commands that answer, and their rows in
// the option table.
#ifndef EBB_APPS_OPTIONS_FIT_OPTIONS_H_
#define EBB_APPS_OPTIONS_FIT_OPTIONS_H_

#include <cstdint>
#include <vector>

#include "ebb/fit.h"

namespace ebb::cli {

struct OptionRow;

// FitInput holds --memory and the options of `ebb fit`.
struct FitInput {
  uint64_t memory_bytes = 0;  // --memory; 0: not given
  int prompt_tokens = kPromptsOfConversation;
  int requests = 1;
  bool list = false;                           // --list: the models that `ebb pull --list` names
  bool measure = false;                        // --measure: run the model to predict tokens/s
  bool chosen = false;                         // the tiers were chosen for --memory, not given
  ExpectedMarks marks = ExpectedMarks::kNone;  // --expect
};

// Appends the rows of the groups kMemory and kFit.
void AppendFitOptionRows(std::vector<OptionRow>* table);

}  // namespace ebb::cli

#endif  // EBB_APPS_OPTIONS_FIT_OPTIONS_H_
