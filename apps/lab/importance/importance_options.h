// Options of `ebb-lab importance`, with their rows of the option table.
#ifndef EBB_APPS_OPTIONS_IMPORTANCE_OPTIONS_H_
#define EBB_APPS_OPTIONS_IMPORTANCE_OPTIONS_H_

#include <string>
#include <vector>

namespace ebb::cli {

struct OptionRow;

// See OcclusionOptions.
struct ImportanceInput {
  int window = 32;          // --occlude
  int stride = 16;          // --stride
  int answer_tokens = 512;  // --answer-tokens
  std::string boundary;     // --boundary
};

// Appends the rows of the group kImportance.
void AppendImportanceOptionRows(std::vector<OptionRow>* table);

}  // namespace ebb::cli

#endif  // EBB_APPS_OPTIONS_IMPORTANCE_OPTIONS_H_
