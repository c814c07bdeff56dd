// The small reasoner that the program carries within itself (training/pebble).
#ifndef EBB_CLI_PEBBLE_MODEL_H_
#define EBB_CLI_PEBBLE_MODEL_H_

#include <string>
#include <string_view>

#include "ebb/status.h"

namespace ebb::cli {

// What names it in place of a file: `-m pebble`.
inline constexpr std::string_view kPebbleName = "pebble";

// A path at which its GGUF file can be opened until the process ends; a file of memory, not of a
// disk. Errors: kIo (out of memory or of file descriptors).
[[nodiscard]] Result<std::string> PebbleModelPath();

}  // namespace ebb::cli

#endif  // EBB_CLI_PEBBLE_MODEL_H_
