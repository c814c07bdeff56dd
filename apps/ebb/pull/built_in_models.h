// The small reasoners that the program carries within itself (training/pebble, training/dms).
#ifndef EBB_APPS_PULL_BUILT_IN_MODELS_H_
#define EBB_APPS_PULL_BUILT_IN_MODELS_H_

#include <array>
#include <string>
#include <string_view>

#include "ebb/status.h"

namespace ebb::cli {

// What names them in place of a file, as in `-m pebble`: the model itself, and it retrofitted with
// Dynamic Memory Sparsification so that it marks three quarters, or seven eighths, of its rows.
inline constexpr std::string_view kPebbleName = "pebble";
inline constexpr std::array<std::string_view, 3> kBuiltInModels = {kPebbleName, "pebble-dms",
                                                                   "pebble-dms-8"};

[[nodiscard]] bool IsBuiltInModel(std::string_view name);

// A path at which the model's GGUF file can be opened until the process ends; a file of memory, not
// of a disk. Errors: kNotFound (no model has this name); kIo (out of memory or of file
// descriptors).
[[nodiscard]] Result<std::string> BuiltInModelPath(std::string_view name);

}  // namespace ebb::cli

#endif  // EBB_APPS_PULL_BUILT_IN_MODELS_H_
