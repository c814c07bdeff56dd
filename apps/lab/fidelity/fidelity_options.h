// Options of `ebb-lab fidelity`, and their rows of the option table.
#ifndef EBB_APPS_LAB_FIDELITY_FIDELITY_OPTIONS_H_
#define EBB_APPS_LAB_FIDELITY_FIDELITY_OPTIONS_H_

#include <string>
#include <vector>

namespace ebb::cli {

struct OptionRow;

struct FidelityInput {
  std::string text_file;
  int tokens = 0;
  int windows = 0;
  int window_tokens = 2048;
  int prompt_tokens = 64;
  bool forgetting = false;
};

// Appends the rows of the group kFidelity.
void AppendFidelityOptionRows(std::vector<OptionRow>* table);

}  // namespace ebb::cli

#endif  // EBB_APPS_LAB_FIDELITY_FIDELITY_OPTIONS_H_
