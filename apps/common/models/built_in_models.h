// Gives access to the small reasoning models that are embedded in the program (training/pebble,
// training/dms).
#ifndef EBB_APPS_PULL_BUILT_IN_MODELS_H_
#define EBB_APPS_PULL_BUILT_IN_MODELS_H_

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace ebb::cli {

// kPebbleName and kBuiltInModels are names that -m accepts in place of a file: the built-in model,
// and two versions of it retrofitted with Dynamic Memory Sparsification, which mark three quarters
// or seven eighths of their rows for eviction.
inline constexpr std::string_view kPebbleName = "pebble";
inline constexpr std::array<std::string_view, 3> kBuiltInModels = {kPebbleName, "pebble-dms",
                                                                   "pebble-dms-8"};

[[nodiscard]] bool IsBuiltInModel(std::string_view name);

// Returns the bytes of the model's GGUF file, which is embedded in the program. REQUIRES:
// IsBuiltInModel(name).
[[nodiscard]] std::span<const std::byte> BuiltInModelFile(std::string_view name);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_BUILT_IN_MODELS_H_
