// Reads from the beginning of a GGUF file the few fields that a list of models shows.
#ifndef EBB_APPS_PULL_GGUF_HEADER_H_
#define EBB_APPS_PULL_GGUF_HEADER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace ebb::cli {

// GgufHeader holds the metadata of a GGUF file that lists of models show.
struct GgufHeader {
  std::string architecture;  // general.architecture, "qwen3"; empty: not found
  std::string quantization;  // by general.file_type, "Q4_K_M"; empty: not found
};
// Reads at most the first mebibyte of the file. Returns empty fields if the file cannot be read.
[[nodiscard]] GgufHeader ReadGgufHeader(const std::string& path);

// Returns the length of the metadata and the table of tensors with which a GGUF file begins, or
// nothing if `bytes`, the beginning of a file, end within them or hold something else.
[[nodiscard]] std::optional<uint64_t> MetadataLength(std::string_view bytes);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_GGUF_HEADER_H_
