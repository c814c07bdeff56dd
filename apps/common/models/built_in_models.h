// The small reasoners that the program carries within itself (training/pebble, training/dms).
#ifndef EBB_APPS_PULL_BUILT_IN_MODELS_H_
#define EBB_APPS_PULL_BUILT_IN_MODELS_H_

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace ebb::cli {

// Names that stand for built-in models in place of a file, as in `-m pebble`: the model itself, and
// the model retrofitted with Dynamic Memory Sparsification so that it marks three quarters, or
// seven eighths, of its rows.
inline constexpr std::string_view kPebbleName = "pebble";
inline constexpr std::array<std::string_view, 3> kBuiltInModels = {kPebbleName, "pebble-dms",
                                                                   "pebble-dms-8"};

[[nodiscard]] bool IsBuiltInModel(std::string_view name);

// The model's GGUF file, which is a part of the program. REQUIRES: IsBuiltInModel(name).
[[nodiscard]] std::span<const std::byte> BuiltInModelFile(std::string_view name);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_BUILT_IN_MODELS_H_
