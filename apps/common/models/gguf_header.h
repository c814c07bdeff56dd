// Reads from the beginning of a GGUF file the few fields that a list of models shows.
#ifndef EBB_APPS_PULL_GGUF_HEADER_H_
#define EBB_APPS_PULL_GGUF_HEADER_H_

#include <string>

namespace ebb::cli {

// GgufHeader holds the metadata of a GGUF file that lists of models show.
struct GgufHeader {
  std::string architecture;  // general.architecture, "qwen3"; empty: not found
  std::string quantization;  // by general.file_type, "Q4_K_M"; empty: not found
};
// Reads at most the first mebibyte of the file. Returns empty fields if the file cannot be read.
[[nodiscard]] GgufHeader ReadGgufHeader(const std::string& path);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_GGUF_HEADER_H_
