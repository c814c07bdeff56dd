#include "apps/common/models/built_in_models.h"

#include <algorithm>

namespace ebb::cli {

// Written by CMake.
extern const std::string_view kPebbleModel;
extern const std::string_view kPebbleDmsModel;
extern const std::string_view kPebbleDms8Model;

bool IsBuiltInModel(std::string_view name) {
  return std::ranges::find(kBuiltInModels, name) != kBuiltInModels.end();
}

std::span<const std::byte> BuiltInModelFile(std::string_view name) {
  const std::string_view file = name == kPebbleName    ? kPebbleModel
                                : name == "pebble-dms" ? kPebbleDmsModel
                                                       : kPebbleDms8Model;
  return std::as_bytes(std::span(file));
}

}  // namespace ebb::cli
