// Small models with random weights for tests of the program.
#ifndef EBB_TESTS_CLI_TINY_MODEL_H_
#define EBB_TESTS_CLI_TINY_MODEL_H_

#include <string>

#include "tests/support/temp_folder.h"

namespace ebb {

class TinyModel {
 public:
  static constexpr int kContext = 256;  // trained, in tokens
  TinyModel();

  // Its prompt has no thoughts.
  [[nodiscard]] std::string path() const { return folder_.File("tiny.gguf"); }
  // The same with a template that opens a thought, and drops those of earlier turns.
  [[nodiscard]] std::string thinking_path() const { return folder_.File("thinking.gguf"); }
  // That template, and a layer with a sliding window of 16 tokens.
  [[nodiscard]] std::string windows_path() const { return folder_.File("windows.gguf"); }
  [[nodiscard]] std::string File(const std::string& name) const { return folder_.File(name); }

 private:
  TempFolder folder_;
};

}  // namespace ebb

#endif  // EBB_TESTS_CLI_TINY_MODEL_H_
