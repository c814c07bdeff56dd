// The few words at the beginning of a GGUF file that a list of models shows, read without the rest.
#ifndef EBB_APPS_PULL_GGUF_HEADER_H_
#define EBB_APPS_PULL_GGUF_HEADER_H_

#include <string>

namespace ebb::cli {

struct GgufHeader {
  std::string architecture;  // general.architecture, "qwen3"; empty: not found
  std::string quantization;  // by general.file_type, "Q4_K_M"; empty: not found
};
// Reads the first mebibyte at most. Empty fields for a file that cannot be read.
[[nodiscard]] GgufHeader ReadGgufHeader(const std::string& path);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_GGUF_HEADER_H_
