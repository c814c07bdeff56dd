// What names of GGUF files say: the quantization, the parts of a file that was split, and which
// file of a repository a tag means, as llama.cpp chooses it.
#ifndef EBB_APPS_PULL_GGUF_NAMES_H_
#define EBB_APPS_PULL_GGUF_NAMES_H_

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ebb::cli {

// "Q8/tide-Q8_0-00001-of-00003.gguf": stem "Q8/tide-Q8_0", index 1, count 3.
struct SplitName {
  std::string stem;
  int index = 1;
  int count = 1;  // 1: not split
};
// Nothing: it does not end with .gguf, or its numbers make no sense.
[[nodiscard]] std::optional<SplitName> ParseSplitName(std::string_view path);
// Of part `index`.
[[nodiscard]] std::string PartName(const SplitName& name, int index);

// "Q4_K_M" of "tide-q4_k_m.gguf", in upper case; empty where the name does not end with a tag.
[[nodiscard]] std::string QuantTag(std::string_view path);

// Whether the path is a language model's, or its first part: not a projector (mmproj), an
// importance matrix or a drafting head.
[[nodiscard]] bool IsModelFile(std::string_view path);

// The file that the quantization means, in either case: the first one with "QUANT." or "QUANT-" in
// its path. Without one: Q4_K_M, else Q8_0, else the first file.
[[nodiscard]] std::optional<std::string> ChooseModelFile(std::span<const std::string> paths,
                                                         std::string_view quant);
// Whether the choice would be the same if there were more files.
[[nodiscard]] bool IsFirstChoice(std::string_view path, std::string_view quant);

// The quantizations that the files' names have, each once.
[[nodiscard]] std::vector<std::string> QuantTags(std::span<const std::string> paths);

// A path within a folder that never leaves it: no empty part, none that is "." or "..", no
// backslash, no control character.
[[nodiscard]] bool IsSafePath(std::string_view path);

// The names that need the fewest edits to become `wanted`, nearest first, at most `count`; upper
// and lower case count as the same.
[[nodiscard]] std::vector<std::string> NearNames(std::string_view wanted,
                                                 std::vector<std::string> names, size_t count);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_GGUF_NAMES_H_
