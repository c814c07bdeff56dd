#include "tests/tools/study_text.h"

#include <fmt/format.h>

#include <fstream>
#include <iterator>

#include "ebb/lab/fidelity.h"

namespace ebb {

Result<std::vector<std::vector<Token>>> ReadWindows(const Model& model,
                                                    const std::string& text_file,
                                                    size_t num_windows, int window_tokens) {
  std::ifstream file(text_file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file) return IoError(fmt::format("cannot read {}", text_file));
  EBB_ASSIGN_OR_RETURN(const std::vector<Token> tokens,
                       model.Tokenize(text, Model::AddBos::kNo, Model::Specials::kAsText));
  EBB_ASSIGN_OR_RETURN(const std::vector<Token> prefix,
                       model.Tokenize("", Model::AddBos::kAsModelSays, Model::Specials::kAsText));
  auto windows = CutWindows(tokens, prefix, window_tokens, kStudyPromptTokens);
  if (windows.size() < num_windows) {
    return InvalidArgument(fmt::format("the text has {} windows of {} tokens, not {}",
                                       windows.size(), window_tokens, num_windows));
  }
  windows.resize(num_windows);
  return windows;
}

}  // namespace ebb
