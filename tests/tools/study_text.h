// The text of a study, cut as `ebb-lab fidelity` cuts it by default.
#ifndef EBB_TESTS_TOOLS_STUDY_TEXT_H_
#define EBB_TESTS_TOOLS_STUDY_TEXT_H_

#include <cstddef>
#include <string>
#include <vector>

#include "ebb/model.h"
#include "ebb/status.h"

namespace ebb {

inline constexpr int kStudyWindowTokens = 2048;
inline constexpr int kStudyPromptTokens = 64;  // of each window

// The first windows of the file. InvalidArgument when it has fewer.
[[nodiscard]] Result<std::vector<std::vector<Token>>> ReadWindows(
    const Model& model, const std::string& text_file, size_t num_windows,
    int window_tokens = kStudyWindowTokens);

}  // namespace ebb

#endif  // EBB_TESTS_TOOLS_STUDY_TEXT_H_
