// Options of `ebb-lab profile`, with their rows of the option table.
#ifndef EBB_APPS_OPTIONS_PROFILE_OPTIONS_H_
#define EBB_APPS_OPTIONS_PROFILE_OPTIONS_H_

#include <optional>
#include <string>
#include <vector>

namespace ebb::cli {

struct OptionRow;

struct ProfileInput {
  std::string prompts_file;    // --prompts
  int transfer_tokens = 1024;  // --transfer-tokens
  std::optional<int> why;      // --why
};

// Appends the rows of the group kProfile.
void AppendProfileOptionRows(std::vector<OptionRow>* table);

}  // namespace ebb::cli

#endif  // EBB_APPS_OPTIONS_PROFILE_OPTIONS_H_
