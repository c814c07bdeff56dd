// Parses names of GGUF files (their quantization, the parts of a split file), and chooses a
// repository's file by a tag as llama.cpp does.
#ifndef EBB_APPS_PULL_GGUF_NAMES_H_
#define EBB_APPS_PULL_GGUF_NAMES_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ebb::cli {

// SplitName is the path of one part of a split model: "Q8/tide-Q8_0-00001-of-00003.gguf" has the
// stem "Q8/tide-Q8_0", index 1 and count 3.
struct SplitName {
  std::string stem;
  int index = 1;
  int count = 1;  // 1: not split
};
// Returns nothing for a path that does not end with .gguf, or with an index outside 1 to count.
[[nodiscard]] std::optional<SplitName> ParseSplitName(std::string_view path);
// Returns the path of part `index`.
[[nodiscard]] std::string PartName(const SplitName& name, int index);

// Returns "Q4_K_M" for "tide-q4_k_m.gguf", in upper case; empty for a name without such a tag.
[[nodiscard]] std::string QuantTag(std::string_view path);

// Returns whether the path names a language model or the first part of one, rather than a projector
// (mmproj), an importance matrix or a drafting head.
[[nodiscard]] bool IsModelFile(std::string_view path);

// Returns the first model file with "QUANT." or "QUANT-" in its path, in upper or lower case. For
// an empty `quant`: the file of Q4_K_M, else of Q8_0, else the first model file.
[[nodiscard]] std::optional<std::string> ChooseModelFile(std::span<const std::string> paths,
                                                         std::string_view quant);
// Returns whether ChooseModelFile() would return `path` whatever other files followed it in the
// list.
[[nodiscard]] bool IsFirstChoice(std::string_view path, std::string_view quant);

// Returns the tags of all model files, each once.
[[nodiscard]] std::vector<std::string> QuantTags(std::span<const std::string> paths);

// Returns whether the path stays inside the folder that it is appended to: it has no empty
// component, no "." or "..", no backslash and no control character.
[[nodiscard]] bool IsSafePath(std::string_view path);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_GGUF_NAMES_H_
