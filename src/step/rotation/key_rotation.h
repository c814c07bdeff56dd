// Keys that are re-rotated where they are, by ggml's own RoPE.
#ifndef EBB_STEP_ROTATION_KEY_ROTATION_H_
#define EBB_STEP_ROTATION_KEY_ROTATION_H_

#include <cstddef>
#include <span>

#include "ebb/status.h"
#include "ebb/types.h"
#include "ggml-backend.h"
#include "src/attention/attention.h"
#include "src/model/loaded_model.h"

namespace ebb {

struct KeyRotator {
  const LoadedModel& model;
  const AttentionKernel& kernel;
  RowType type;
  ggml_backend_t backend;
};

// Turns the keys of a layer by so many positions, [rows]; keys: where they are, null where the turn
// is 0. OutOfMemory before any key turned; Internal when ggml fails.
[[nodiscard]] Status RotateKeysOfStream(const KeyRotator& by, int layer,
                                        std::span<std::byte* const> keys,
                                        std::span<const Position> turns);

}  // namespace ebb

#endif  // EBB_STEP_ROTATION_KEY_ROTATION_H_
